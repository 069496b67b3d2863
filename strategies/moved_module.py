"""Moves a module that has values to its device and dtype. Those of the house are made there, and need it not."""

import torch
from torch import nn


def move(module: nn.Module, device: torch.device, dtype: torch.dtype, buffers: torch.dtype) -> None:
    """Move `module`: floating-point parameters in `dtype`, floating-point buffers in `buffers`. Complex buffers stay complex.

    Parameters become contiguous, as the chunks of ZeRO and the optimizer's fused steps take them.
    """
    owned = [(owner, name, buffer) for owner in module.modules() for name, buffer in owner.named_buffers(recurse=False)]
    for owner, name, _ in owned:
        setattr(owner, name, None)  # `to` would drop imaginary parts
    module.to(device=device, dtype=dtype)
    for owner, name, buffer in owned:
        setattr(owner, name, buffer.to(device, buffers if buffer.is_floating_point() else None))
    for parameter in module.parameters():
        if not parameter.is_contiguous():
            parameter.data = parameter.data.contiguous()
