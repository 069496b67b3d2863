"""Initial weights: a function of (seed, parameter name) alone.

No layout, no order of construction and no other parameter changes a weight, so every layout starts from the same model. Each
parameter has its own generator, seeded by a hash of the seed and its name. The values are drawn on the CPU in float32, whatever the
training dtype and device. GPT-2's scheme: N(0, 0.02), and 0.02/√(2·layers) for the projections into the residual stream.
"""

import hashlib

import torch
from torch import Tensor

from .presets import Architecture

STD = 0.02
_RESIDUAL = ("attention.o.weight", "mlp.down.weight", "mlp.experts.down")


def initial_value(name: str, shape: torch.Size, seed: int, arch: Architecture) -> Tensor:
    """The whole parameter `name` (as in `blocks.3.mlp.up.weight`) at step 0, float32 on the CPU."""
    *_, module, kind = name.split(".")
    if kind == "bias":
        return torch.zeros(shape)
    if module.endswith("norm"):
        return torch.ones(shape)
    std = STD / (2 * arch.layers) ** 0.5 if name.endswith(_RESIDUAL) else STD
    return torch.empty(shape).normal_(0.0, std, generator=_generator(seed, name))


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
