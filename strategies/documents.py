"""Packed documents: a row of tokens holds several, and each is trained as if it stood alone.

A row is consecutive tokens of the corpus, and one token marks the end of a document, to which it belongs. So where documents start
follows from a row's own tokens, and nothing more is stored or sent. A document that the row before began starts again at the
row's first token. Within a row:

- a query attends to the keys of its own document up to itself (`context_parallel/document_mask.py`),
- positions begin at 0 in each document,
- no token predicts the first token of the next document: such a target is `IGNORED`,
- a mixture's experts and its auxiliary losses see the tokens that predict one (`workers/models/document_routing.py`).
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

#: A target that does not count. It is so far from every token that it stays recognisable after a shift by a rank's first column.
IGNORED: Final = -(1 << 40)


@dataclass(frozen=True)
class Packed:
    """A rank's tokens [rows, positions], and `starts` [rows, sequence + 1] (int64): at which place of its row each token's document starts.

    `starts` are those of the whole sequence on every rank, also where `tokens` are a part of it. The last one is that of the token after
    the row, which the row's last token predicts if both are of one document.
    """

    tokens: Tensor
    starts: Tensor

    def chunk(self, chunks: int) -> list["Packed"]:
        """The rows in equal parts: the micro-batches."""
        parts = zip(self.tokens.chunk(chunks), self.starts.chunk(chunks), strict=True)
        return [Packed(tokens, starts) for tokens, starts in parts]

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Packed":
        """Both on `device`."""
        moved = (one.to(device, non_blocking=non_blocking) for one in (self.tokens, self.starts))
        return Packed(*moved)

    def pin_memory(self) -> "Packed":
        """Both in pinned memory."""
        return replace(self, tokens=self.tokens.pin_memory(), starts=self.starts.pin_memory())


def starts_of(tokens: Tensor, end: int) -> Tensor:
    """For `tokens` [rows, sequence] the places [rows, sequence + 1] (int64) at which their documents start; `end` ends a document.

    The last place is that of the token after the row.
    """
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    after = torch.where(tokens == end, places, 0).cummax(1).values
    return torch.cat((torch.zeros_like(after[:, :1]), after), dim=1)


def predicts(starts: Tensor, places: Tensor) -> Tensor:
    """Whether the tokens at `places` [n] of their rows have a target, bool [rows, n]: whether the next token is of the same document.

    `starts` [rows, sequence + 1] as in `Packed`.
    """
    return starts[:, places + 1] <= places


def within(tokens: Tensor, targets: Tensor, end: int) -> Tensor:
    """`targets` [rows, sequence], `IGNORED` where they belong to another document than their token."""
    return targets.masked_fill(tokens == end, IGNORED)


def count(targets: Tensor) -> Tensor:
    """The number of targets that count, an int64 scalar."""
    return (targets != IGNORED).sum()


def taken(inputs: Tensor | Packed) -> tuple[Tensor, dict[str, Any]]:
    """The tokens, and the keyword arguments of a model that takes documents apart."""
    return (inputs.tokens, {"starts": inputs.starts}) if isinstance(inputs, Packed) else (inputs, {})
