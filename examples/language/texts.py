"""Sequences that follow a rule, x[t+1] = (a·x[t] + b) mod 61, and what models of language are trained on: all from the sample's seed.

A model that knows the rule sees a and b in the first few tokens. Tokens 0 to 60 are numbers; the others are named below.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
#: What one sample is made of: name → array.
Sample = Mapping[str, NDArray[np.generic]]
NUMBERS, MASK, BEGIN = 61, 61, 62
VOCABULARY = 64
#: A target that does not count.
IGNORED = -100


class Drawn:
    """Samples without end, each drawn by `draw` from a generator of its own."""

    samples = None
    validation_samples = 64

    def __init__(self, draw: Callable[[np.random.Generator], Sample]) -> None:
        self.draw = draw

    def training(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:  # noqa: ARG002
        """The samples of `seeds`; indices have no part in them."""
        drawn = [self.draw(np.random.default_rng(seed)) for seed in seeds]
        return {name: torch.from_numpy(np.stack([sample[name] for sample in drawn])) for name in drawn[0]}

    validation = training


def rule(random: np.random.Generator, length: int, a: int | None = None, b: int | None = None) -> Numbers:
    """`length` tokens of a rule, which is drawn where it is not given."""
    a = int(random.integers(1, 5)) if a is None else a
    b = int(random.integers(0, 4)) if b is None else b
    tokens = [int(random.integers(NUMBERS))]
    while len(tokens) < length:
        tokens.append((a * tokens[-1] + b) % NUMBERS)
    return np.array(tokens)


def plain(length: int = 32) -> Drawn:
    """`tokens` [rows, length]."""
    return Drawn(lambda random: {"tokens": rule(random, length)})


def masked(length: int = 32, share: float = 0.15) -> Drawn:
    """`tokens` with `share` of them hidden, and `targets` that are −100 elsewhere (BERT, 1810.04805, section 3.1).

    Of the hidden ones 80% are MASK, 10% another number, and 10% unchanged.
    """

    def draw(random: np.random.Generator) -> Sample:
        tokens = rule(random, length)
        hidden = random.permutation(length) < max(1, round(share * length))
        kind = random.random(length)
        seen = np.where(kind < 0.8, MASK, np.where(kind < 0.9, random.integers(NUMBERS, size=length), tokens))
        return {"tokens": np.where(hidden, seen, tokens), "targets": np.where(hidden, tokens, IGNORED)}

    return Drawn(draw)


def pairs(length: int = 16, negatives: int = 4) -> Drawn:
    """`anchor` and `positive` [rows, length] of one rule, and `negatives` [rows, negatives, length] of others."""

    def draw(random: np.random.Generator) -> Sample:
        a, b = int(random.integers(1, 5)), int(random.integers(0, 4))
        others = [rule(random, length, a % 4 + 1, int(random.integers(0, 4))) for _ in range(negatives)]
        return {
            "anchor": rule(random, length, a, b),
            "positive": rule(random, length, a, b),
            "negatives": np.stack(others),
        }

    return Drawn(draw)


def reversals(length: int = 12, written: int | None = None) -> Drawn:
    """`source` [rows, length], and `target` [rows, written + 1]: BEGIN, then the source from its end, `written` tokens of it or all."""

    def draw(random: np.random.Generator) -> Sample:
        tokens = rule(random, length)
        return {"source": tokens, "target": np.concatenate([[BEGIN], tokens[::-1][:written]])}

    return Drawn(draw)


def preferences(length: int = 24, prompt: int = 12) -> Drawn:
    """`chosen`, which follows its rule to the end, and `rejected`, random numbers after the same `prompt` tokens; both [rows, length]."""

    def draw(random: np.random.Generator) -> Sample:
        chosen = rule(random, length)
        rejected = np.concatenate([chosen[:prompt], random.integers(NUMBERS, size=length - prompt)])
        return {"chosen": chosen, "rejected": rejected}

    return Drawn(draw)
