"""A model of your own: predicts the next token from this one and the one before. Token ids [batch, seq] → logits [batch, seq, 256].

Data parallelism and ZeRO use it unchanged. Tensor parallelism needs a method `tensor_plan`, context parallelism `spread_context`.
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
        before[:, 0] = 0  # there is no token before the first
        seen = self.here(tokens) + self.before(before)
        logits: torch.Tensor = self.head(seen + self.hidden(seen))
        return logits


def make(width: int = 64) -> nn.Module:
    """Build the model; `model.import` names this function."""
    return Bigram(width)
