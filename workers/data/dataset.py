"""Windows of tokens in an order that every rank can compute for itself.

A sample's tokens are a function of (corpus, seed, sample) alone. Windows of `seq_len` inputs start at multiples of `seq_len`; each
position's target is the token after it, so a window reads one token of the next. Samples run over epochs, and each epoch is a
permutation of all windows. Therefore ranks share no state, a run can continue with any sample, whatever its global batch
(`position.py`), and a step costs what its rows cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spec import DataSpec
from . import split_lengths
from .position import SampleOrder
from .shuffle import shuffled
from .split_lengths import windows
from .token_cache import prepare
from .tokenizer import Trained, document_end, load_tokenizer
from .unigram_baseline import unigram_loss

Rows = slice | Sequence[int] | NDArray[np.integer[Any]]
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Tokens:
    """A corpus split in two and divided into windows. Ranks with another `order` read other text, with another `sha256` other tokens."""

    order: SampleOrder
    vocab: int
    global_batch: int
    unigram_loss: float | None  # nats per token, of the validation split; None: it could not be cached
    train: NDArray[Any]
    held_out: NDArray[Any]
    end: int | None = None  # the id that ends a document, if documents are packed
    sha256: str = ""  # of all tokens; no part of the order, which checkpoints have

    @property
    def seq_len(self) -> int:
        return self.order.seq_len

    @property
    def train_tokens(self) -> int:
        return len(self.train)

    @property
    def validation_tokens(self) -> int:
        return len(self.held_out)

    @property
    def train_windows(self) -> int:
        return windows(len(self.train), self.seq_len)

    @property
    def validation_windows(self) -> int:
        return windows(len(self.held_out), self.seq_len)

    def batch(self, first: int, rows: Rows) -> Pair:
        """Inputs and targets [rows, seq_len] (int64): the given rows of the global batch that begins with the sample `first`."""
        samples = first + numbers_of(rows, self.global_batch)
        return self._read(self.train, shuffled(samples, self.train_windows, f"train/{self.order.seed}"))

    def validation(self, batch_index: int, rows: Rows) -> Pair:
        """Inputs and targets [rows, seq_len] (int64) of a validation batch: the same for every seed and step.

        Batches are distributed over the whole split; after `validation_windows` samples they begin again in another order.
        """
        samples = batch_index * self.global_batch + numbers_of(rows, self.global_batch)
        return self._read(self.held_out, shuffled(samples, self.validation_windows, "validation"))

    def _read(self, ids: NDArray[Any], windows: NDArray[np.int64]) -> Pair:
        both = np.empty((len(windows), self.seq_len + 1), dtype=np.int64)
        for row, start in zip(both, windows * self.seq_len, strict=True):
            row[:] = ids[start : start + self.seq_len + 1]
        both_tensor = torch.from_numpy(both)
        return both_tensor[:, :-1].contiguous(), both_tensor[:, 1:].contiguous()


def numbers_of(rows: Rows, global_batch: int) -> NDArray[np.int64]:
    """The numbers of the given rows of a global batch. Raises IndexError for a row that it does not have."""
    chosen = range(*rows.indices(global_batch)) if isinstance(rows, slice) else rows
    numbers = np.asarray(chosen, dtype=np.int64).reshape(-1)
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= global_batch):
        raise IndexError(f"rows {numbers.min()}..{numbers.max()} of a global batch of {global_batch}")
    return numbers


def open_tokens(
    spec: DataSpec,
    cache: Path,
    *,
    seed: int,
    global_batch: int,
    beat: Callable[[], None] = lambda: None,
    trained: Trained = lambda: None,
) -> Tokens:
    """The corpus of `spec`; tokenizes it into `cache` first if necessary. Raises `DataError`, and what `trained` raises.

    `beat` is called as in `prepare`, `trained` as in `load_tokenizer`. Raises `Refusal` for documents that cannot be packed.
    """
    tokenizer = load_tokenizer(spec, trained)
    end = document_end(spec, tokenizer)
    file = prepare(spec, cache, beat, tokenizer)
    split_lengths.check(file.tokens, spec)
    train_tokens = split_lengths.training_tokens(file.tokens, spec)
    ids = file.map()
    return Tokens(
        order=SampleOrder(file.key, file.tokenizer, spec.seq_len, spec.validation, seed),
        vocab=file.vocab,
        global_batch=global_batch,
        unigram_loss=unigram_loss(file, train_tokens, cache, beat),
        train=ids[:train_tokens],
        held_out=ids[train_tokens:],
        end=end,
        sha256=file.sha256,
    )
