"""The transformer that the models of this folder share, and the loss per sequence."""

import torch
from texts import IGNORED, VOCABULARY
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Attention of `x` to `seen`: itself, or an encoder's output."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.keys, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, seen: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """`x` [rows, n, dim], `seen` [rows, m, dim] → [rows, n, dim]. `bias` [heads, n, m] is added to the scores."""
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = self.keys(seen).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        causal = self.causal and bias is None
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=causal)
        result: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result


class Block(nn.Module):
    """Attention, for a decoder attention to an encoder's output too, and a feed-forward layer; norms come first."""

    def __init__(self, dim: int, heads: int, causal: bool, crossed: bool) -> None:
        super().__init__()
        self.attend = Attention(dim, heads, causal)
        self.cross = Attention(dim, heads, False) if crossed else None
        self.norms = nn.ModuleDict({name: nn.LayerNorm(dim) for name in ("attend", "hidden", *["cross"] * crossed)})
        self.hidden = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(
        self, x: torch.Tensor, encoded: torch.Tensor | None = None, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        normed = self.norms["attend"](x)
        x = x + self.attend(normed, normed, bias)
        if self.cross is not None and encoded is not None:
            x = x + self.cross(self.norms["cross"](x), encoded)
        result: torch.Tensor = x + self.hidden(self.norms["hidden"](x))
        return result


class Transformer(nn.Module):
    """Token ids [rows, n] → hidden states [rows, n, dim]."""

    def __init__(self, dim: int, layers: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 64, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, causal, crossed=False) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.positions[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.norm(x)
        return result


class LanguageModel(nn.Module):
    """Token ids [rows, n] → logits [rows, n, vocabulary] of the next token."""

    def __init__(self, dim: int, layers: int, heads: int) -> None:
        super().__init__()
        self.body = Transformer(dim, layers, heads, causal=True)
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(tokens))
        return logits


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each row [rows], over the positions whose target counts."""
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=IGNORED)
    return losses.sum(1) / (targets != IGNORED).sum(1)
