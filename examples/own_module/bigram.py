"""A model of one's own: the next token from this one and the one before. Token ids [batch, seq] in, logits [batch, seq, 256] out.

Data parallelism and ZeRO take it as it is. Tensor parallelism would ask it for its `tensor_plan`, context parallelism for `spread_context`.
"""

import torch
from torch import nn


class Bigram(nn.Module):
    """Two embeddings, a hidden layer, a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.here = nn.Embedding(256, width)
        self.before = nn.Embedding(256, width)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        before = torch.roll(tokens, 1, dims=1)
        before[:, 0] = 0  # no token stands before the first
        seen = self.here(tokens) + self.before(before)
        logits: torch.Tensor = self.head(seen + self.hidden(seen))
        return logits


def make(width: int = 64) -> nn.Module:
    """What `model.import` names."""
    return Bigram(width)
