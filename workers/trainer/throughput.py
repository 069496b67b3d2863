"""A step's speed: tokens per second, per device, and the share of the devices' peak that the model's own arithmetic used (MFU).

MFU is PaLM's (Chowdhery et al., 2204.02311, appendix B): tokens/s × (6·N + 12·layers·heads·head size·seq) / peak FLOP/s, where recomputed
operations do not count. Peaks are dense ones, of the tensor cores in 16 bits or of fp32 units, from the makers' data sheets.
For fp8 the peak is that in 16 bits, too, so that its MFU shows the gain over bf16.
"""

from dataclasses import dataclass

#: The formula's name, reported beside the number.
MFU_FORMULA = "PaLM (2204.02311), appendix B"

#: Part of a CUDA device's name → (bf16/fp16, fp32) peak in TFLOP/s, dense; the first that matches counts.
_PEAKS: tuple[tuple[str, float, float], ...] = (
    ("B200", 2250.0, 80.0),
    ("H200", 989.4, 66.9),
    ("H100 PCIe", 756.0, 51.2),
    ("H100 NVL", 835.0, 60.0),
    ("H100", 989.4, 66.9),
    ("A100", 312.0, 19.5),
    ("L40S", 362.05, 91.6),
    ("L4", 121.0, 30.3),
    ("A10", 125.0, 31.2),
    ("V100", 125.0, 15.7),
)


def peak_flops(device: str, precision: str) -> float | None:
    """Peak FLOP/s of a device by its CUDA name; None if it is not known (CPUs, other GPUs, fp64)."""
    if precision == "fp64":
        return None
    for part, half, single in _PEAKS:
        if part in device:
            return 1e12 * (single if precision == "fp32" else half)
    return None


@dataclass(frozen=True)
class Throughput:
    """`flops` per token of forward and backward, `peak` FLOP/s of one of `devices`; None if not known."""

    devices: int
    flops: int | None
    peak: float | None

    def of(self, tokens: int, seconds: float) -> dict[str, float | None]:
        """`tokens_per_s`, `tokens_per_s_device` and `mfu` (0 to 1) of `tokens` in `seconds`."""
        speed = tokens / seconds if seconds else 0.0
        known = self.flops is not None and self.peak is not None
        mfu = speed * (self.flops or 0) / (self.devices * (self.peak or 1)) if known else None
        return {"tokens_per_s": speed, "tokens_per_s_device": speed / self.devices, "mfu": mfu}
