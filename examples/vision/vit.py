"""A vision transformer (Dosovitskiy et al., 2010.11929): an image's patches are its tokens, and one more token is classified."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention over all tokens, then a feed-forward layer; norms come first."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_hidden = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.hidden = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [rows, tokens, dim] → the same shape."""
        parts = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.hidden(self.norm_hidden(x))
        return result


class VisionTransformer(nn.Module):
    """Fields `image` [rows, 3, size, size] and `label` [rows] → one cross-entropy per image [rows]."""

    def __init__(self, size: int, patch: int, dim: int, layers: int, heads: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        tokens = self.embed(fields["image"]).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x[:, 0]))
        self.log("accuracy", (logits.argmax(-1) == fields["label"]).float().mean())
        return functional.cross_entropy(logits, fields["label"], reduction="none")


def make(size: int = 16, patch: int = 4, dim: int = 64, layers: int = 2, heads: int = 4, classes: int = 4) -> nn.Module:
    """`model.import` names this function."""
    return VisionTransformer(size, patch, dim, layers, heads, classes)
