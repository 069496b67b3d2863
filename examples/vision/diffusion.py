"""A diffusion transformer (DiT; Peebles and Xie, 2212.09748) for images or videos, trained by flow matching (Lipman et al., 2210.02747).

x_t = (1 − t)·x + t·ε, and the model predicts the velocity ε − x. The noise ε and the time t are the source's, drawn from each sample's
seed, so that every layout trains on the same ones.
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import nn
from torch.nn import functional


class Patches(nn.Module):
    """Cuts [rows, channels, *grid] into patches and back: [rows, tokens, channels · patch size]. Two sides: images, three: videos."""

    def __init__(self, grid: Sequence[int], patch: Sequence[int], channels: int) -> None:
        super().__init__()
        self.counts = [side // part for side, part in zip(grid, patch, strict=True)]
        self.patch, self.channels = list(patch), channels
        self.tokens, self.values = prod(self.counts), channels * prod(patch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes = len(self.patch)
        sides = [side for pair in zip(self.counts, self.patch, strict=True) for side in pair]
        split = x.reshape(len(x), self.channels, *sides)
        order = [0, *(2 + 2 * axis for axis in range(axes)), 1, *(3 + 2 * axis for axis in range(axes))]
        return split.permute(order).reshape(len(x), self.tokens, self.values)


class Block(nn.Module):
    """Attention and a feed-forward layer, both scaled, shifted and gated by the condition (adaLN-Zero, section 3.2)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.hidden = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.condition = nn.Linear(dim, 6 * dim)
        nn.init.zeros_(self.condition.weight)
        nn.init.zeros_(self.condition.bias)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """`x` [rows, tokens, dim], `condition` [rows, 1, dim] → [rows, tokens, dim]."""
        shift, scale, gate, shift2, scale2, gate2 = self.condition(functional.silu(condition)).chunk(6, -1)
        parts = self.qkv(self.norm(x) * (1 + scale) + shift).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + gate * self.out(functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
        result: torch.Tensor = x + gate2 * self.hidden(self.norm(x) * (1 + scale2) + shift2)
        return result


class DiffusionTransformer(nn.Module):
    """Fields `image` and `noise` [rows, 3, *grid], `time` [rows] (0 to 1), `label` [rows] → one mean squared error per sample [rows]."""

    def __init__(self, grid: Sequence[int], patch: Sequence[int], dim: int, layers: int, heads: int) -> None:
        super().__init__()
        self.patches = Patches(grid, patch, 3)
        self.embed, self.labels = nn.Linear(self.patches.values, dim), nn.Embedding(4, dim)
        self.positions = nn.Parameter(0.02 * torch.randn(1, self.patches.tokens, dim))
        self.times = nn.Sequential(nn.Linear(32, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.head = nn.Linear(dim, self.patches.values)

    def forward(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        image, noise = self.patches(fields["image"]), self.patches(fields["noise"])
        time = fields["time"][:, None, None]
        condition = self.times(_waves(time)) + self.labels(fields["label"])[:, None]
        x = self.embed((1 - time) * image + time * noise) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        velocity = self.head(self.norm(x))
        return (velocity - (noise - image)).square().mean((1, 2))


def _waves(time: torch.Tensor) -> torch.Tensor:
    """`time` [rows, 1, 1] as 16 sines and cosines of growing frequency."""
    angles = time * 2.0 ** torch.arange(16, device=time.device, dtype=time.dtype)
    return torch.cat([angles.sin(), angles.cos()], -1)


def images(size: int = 16, patch: int = 4, dim: int = 64, layers: int = 2, heads: int = 4) -> nn.Module:
    """A model of images: 2-D patches."""
    return DiffusionTransformer((size, size), (patch, patch), dim, layers, heads)


def videos(
    frames: int = 8, size: int = 16, patch: int = 4, dim: int = 64, layers: int = 2, heads: int = 4
) -> nn.Module:
    """A model of videos: 3-D patches of two frames."""
    return DiffusionTransformer((frames, size, size), (2, patch, patch), dim, layers, heads)
