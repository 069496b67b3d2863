"""The unigram loss: the loss of a model that uses only token frequencies. Imports no torch.

It is measured, not estimated: the train split's frequencies with one added to each (Laplace), evaluated on the whole validation
split. A training whose validation loss is not below it has learned no context.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..atomic_files import write_whole
from .token_cache import READ_ONLY, TokenFile, locked, unwritable

_BLOCK = 1 << 22


def histogram(ids: NDArray[Any], vocab: int, beat: Callable[[], None] = lambda: None) -> NDArray[np.int64]:
    """How often each id below `vocab` occurs. Uses bounded memory. `beat` is called for each block of ids."""
    counts = np.zeros(vocab, dtype=np.int64)
    for start in range(0, len(ids), _BLOCK):
        counts += np.bincount(ids[start : start + _BLOCK], minlength=vocab)
        beat()
    return counts


def cross_entropy(train: NDArray[np.int64], validation: NDArray[np.int64]) -> float:
    """Nats per token of the validation counts under the train counts with add-one smoothing."""
    probability = (train + 1) / (train.sum() + len(train))
    return float(-(validation * np.log(probability)).sum() / validation.sum())


def unigram_loss(
    file: TokenFile, train_tokens: int, cache: Path, beat: Callable[[], None] = lambda: None
) -> float | None:
    """The unigram loss of a split after `train_tokens`. It is cached beside the tokens.

    None where it is not cached and the cache may only be read: each rank would read the whole corpus, at each start. `beat` is called for
    each block of tokens, and while another process has the lock. Raises `DataError`.
    """
    path = cache / f"{file.key}-{train_tokens}.unigram.json"
    if (known := _known(path, file)) is not None:
        return known
    try:
        return _measured(path, file, train_tokens, beat)
    except OSError as error:
        if error.errno in READ_ONLY:
            return None
        raise unwritable(cache, error) from error


def _measured(path: Path, file: TokenFile, train_tokens: int, beat: Callable[[], None]) -> float:
    """The loss, from the cache or into it."""
    with locked(path.with_name(f"{file.key}.lock"), beat=beat) as alive:
        if (known := _known(path, file)) is not None:
            return known
        ids = file.map()
        train = histogram(ids[:train_tokens], file.vocab, alive)
        loss = cross_entropy(train, histogram(ids[train_tokens:], file.vocab, alive))
        record = {"sha256": file.sha256, "unigram_loss": loss}
        write_whole(path, [json.dumps(record).encode()])
    return loss


def _known(path: Path, file: TokenFile) -> float | None:
    try:
        record = json.loads(path.read_bytes())
        return float(record["unigram_loss"]) if record["sha256"] == file.sha256 else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
