"""What is known of GPU models by the names that their drivers give: memory, compute capability and peak FLOP/s. Imports no torch.

Peaks are dense ones, of the tensor cores in 16 bits and of fp32 units, from the makers' data sheets, as is the bandwidth of memory and of
the link to another GPU of a node: NVLink or Infinity Fabric where a node usually has it, else PCI Express. Memory is what the driver
reports as total (`nvidia-smi`), before a context takes its part.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class GpuModel:
    """`name` is the short one that people use; `devices` are the whole names that drivers report."""

    name: str
    devices: tuple[str, ...]
    capability: tuple[int, int]  # CUDA compute capability; of an AMD GPU its gfx version
    memory_mib: int
    half_tflops: float  # bf16 and fp16
    single_tflops: float
    memory_gbytes_s: int  # of its own memory
    link_gbytes_s: int  # to another GPU of its node, in each direction

    @property
    def memory_bytes(self) -> int:
        return self.memory_mib * 2**20


GPU_MODELS: Final = (
    GpuModel("GB200", ("NVIDIA GB200",), (10, 0), 189471, 2500.0, 80.0, 8000, 900),
    GpuModel("B200", ("NVIDIA B200",), (10, 0), 183359, 2250.0, 75.0, 7700, 900),
    GpuModel("H200", ("NVIDIA H200",), (9, 0), 143771, 989.4, 66.9, 4800, 450),
    GpuModel("H200 NVL", ("NVIDIA H200 NVL",), (9, 0), 143771, 835.5, 60.0, 4800, 450),
    GpuModel("H100", ("NVIDIA H100 80GB HBM3",), (9, 0), 81559, 989.4, 66.9, 3350, 450),
    GpuModel("H100 PCIe", ("NVIDIA H100 PCIe",), (9, 0), 81559, 756.0, 51.2, 2000, 64),
    GpuModel("H100 NVL", ("NVIDIA H100 NVL",), (9, 0), 95830, 835.5, 60.0, 3900, 300),
    GpuModel("A100 80GB", ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"), (8, 0), 81920, 312.0, 19.5, 2039, 300),
    GpuModel("A100 40GB", ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), (8, 0), 40960, 312.0, 19.5, 1555, 300),
    GpuModel("L40S", ("NVIDIA L40S",), (8, 9), 46068, 362.05, 91.6, 864, 32),
    GpuModel("L40", ("NVIDIA L40",), (8, 9), 46068, 181.05, 90.5, 864, 32),
    GpuModel("L4", ("NVIDIA L4",), (8, 9), 23034, 121.0, 30.3, 300, 32),
    GpuModel("A10", ("NVIDIA A10",), (8, 6), 23028, 125.0, 31.2, 600, 32),
    GpuModel("A10G", ("NVIDIA A10G",), (8, 6), 23028, 70.0, 31.5, 600, 32),
    GpuModel("V100 32GB", ("Tesla V100-SXM2-32GB",), (7, 0), 32768, 125.0, 15.7, 900, 150),
    GpuModel("V100 16GB", ("Tesla V100-SXM2-16GB",), (7, 0), 16384, 125.0, 15.7, 900, 150),
    GpuModel("V100 PCIe 32GB", ("Tesla V100-PCIE-32GB",), (7, 0), 32768, 112.0, 14.0, 900, 16),
    GpuModel("V100 PCIe 16GB", ("Tesla V100-PCIE-16GB",), (7, 0), 16384, 112.0, 14.0, 900, 16),
    GpuModel("T4", ("Tesla T4",), (7, 5), 15360, 65.0, 8.1, 320, 16),
    GpuModel("MI300X", ("AMD Instinct MI300X",), (9, 4), 196592, 1307.4, 163.4, 5300, 448),
)


def gpu_of_device(device: str) -> GpuModel | None:
    """The model of a device by its driver's whole name. None for what is not known, such as a part of a GPU (MIG)."""
    return next((model for model in GPU_MODELS if device in model.devices), None)


def gpus_of_ray(name: str) -> tuple[GpuModel, ...]:
    """The models that Ray calls `name`: `A100` stands for two sizes of memory. Empty for what is not known."""
    folded = "mi300x" if name.casefold().startswith("amd-instinct-mi300x") else name.casefold()
    return tuple(model for model in GPU_MODELS if model.name.casefold().split()[0] == folded)


def gpu_named(name: str) -> GpuModel | None:
    """The model that people call `name`, or whose device has that name; case does not matter."""
    wanted = name.strip().casefold()
    names = {alias.casefold(): model for model in GPU_MODELS for alias in (model.name, *model.devices)}
    return names.get(wanted)
