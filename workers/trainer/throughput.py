"""A step's speed: tokens per second, per device, and the share of the devices' peak that the model's own arithmetic used (MFU).

MFU is PaLM's (Chowdhery et al., 2204.02311, appendix B): tokens/s × (6·N + 12·layers·heads·head size·seq) / peak FLOP/s, where recomputed
operations do not count. Peaks are those of `gpu_models.py`.
For fp8 the peak is that in 16 bits, too, so that its MFU shows the gain over bf16.
"""

from dataclasses import dataclass

from ..gpu_models import gpu_of_device

#: The formula's name, reported beside the number.
MFU_FORMULA = "PaLM (2204.02311), appendix B"


def peak_flops(device: str, precision: str) -> float | None:
    """Peak FLOP/s of a device by its whole name; None if it is not known (CPUs, other GPUs and parts of them, fp64)."""
    model = gpu_of_device(device)
    if model is None or precision == "fp64":
        return None
    return 1e12 * (model.single_tflops if precision == "fp32" else model.half_tflops)


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
