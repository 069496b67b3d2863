"""A speech recogniser: convolutions shorten a long recording, a transformer reads all of it, and CTC aligns it with its text.

Connectionist temporal classification: Graves et al., ICML 2006. The encoder is that of Whisper (Radford et al., 2212.04356, section 2.2).
"""

from collections.abc import Mapping

import torch
from sounds import BANDS
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention over all frames, then a feed-forward layer; norms come first."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_hidden = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.hidden = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` [rows, frames, dim] → the same shape."""
        parts = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.hidden(self.norm_hidden(x))
        return result


class Listener(nn.Module):
    """Fields `frames` [rows, length, 16] and `digits` [rows, n] → one CTC loss per recording, per digit [rows]."""

    def __init__(self, dim: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.shorten = nn.Sequential(
            nn.Conv1d(BANDS, dim, 3, stride=2, padding=1), nn.GELU(), nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        )
        self.positions = nn.Parameter(0.02 * torch.randn(1, length // 4, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 11)

    def forward(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        x = self.shorten(fields["frames"].transpose(1, 2)).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        scores, digits = self.head(self.norm(x)), fields["digits"]
        wide = scores if scores.dtype == torch.float64 else scores.float()  # CTC has no kernel for half precision
        rows, frames = scores.shape[:2]
        lengths = torch.full((rows,), frames), torch.full((rows,), digits.shape[1])
        losses = functional.ctc_loss(wide.log_softmax(-1).transpose(0, 1), digits, *lengths, reduction="none")
        return losses / digits.shape[1]


def make(dim: int = 64, layers: int = 2, heads: int = 4, length: int = 1024) -> nn.Module:
    """`model.import` names this function."""
    return Listener(dim, layers, heads, length)
