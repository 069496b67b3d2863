"""Initial weights: a function of (seed, parameter name, place in the parameter) alone.

No layout, no order of construction and no other parameter changes a weight, so every layout starts from the same model, and a rank
draws only what it holds. The values are drawn in float32 on the parameter's device, whatever the training dtype, with the same bits
on every device (`normal_values.py`). GPT-2's scheme: N(0, 0.02), and 0.02/√(2·layers) for the projections into the residual stream.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from .normal_values import ParamSlice, normal_values
from .presets import Architecture

STD = 0.02
_RESIDUAL = ("attention.o.weight", "mlp.down.weight", "mlp.experts.down", "mlp.shared_experts.down.weight")


def initial_value(name: str, shape: Sequence[int], seed: int, arch: Architecture) -> Tensor:
    """The whole parameter `name` (as in `blocks.3.mlp.up.weight`) at step 0, float32 on the CPU."""
    whole = ParamSlice(tuple(shape), (0,) * len(shape), tuple(shape))
    return initial_values(name, whole, seed, arch, torch.device("cpu"))


def initial_values(name: str, where: ParamSlice, seed: int, arch: Architecture, device: torch.device) -> Tensor:
    """That slice of the parameter `name` at step 0, float32 on `device`."""
    *_, module, kind = name.split(".")
    if kind == "bias":
        return torch.zeros(where.size, device=device)
    if module.endswith("norm"):
        return torch.ones(where.size, device=device)
    std = STD / (2 * arch.layers) ** 0.5 if name.endswith(_RESIDUAL) else STD
    return normal_values(_key(seed, name), std, where, device)


def _key(seed: int, name: str) -> tuple[int, int]:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")
