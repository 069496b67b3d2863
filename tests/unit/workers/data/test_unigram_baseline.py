import math
from pathlib import Path

import numpy as np
import pytest

from shardyard.workers.data.token_cache import prepare
from shardyard.workers.data.unigram_baseline import cross_entropy, histogram, unigram_loss
from shardyard.workers.spec import DataSpec


def test_is_the_cross_entropy_of_smoothed_frequencies() -> None:
    """Train a a a b, validation a b c over three tokens: p(a) = 4/7, p(b) = 2/7, p(c) = 1/7."""
    train, validation = histogram(np.array([0, 0, 0, 1]), 3), histogram(np.array([0, 1, 2]), 3)
    expected = -(math.log(4 / 7) + math.log(2 / 7) + math.log(1 / 7)) / 3
    assert cross_entropy(train, validation) == pytest.approx(expected, rel=1e-14)


def test_a_uniform_train_split_gives_the_logarithm_of_the_vocabulary() -> None:
    assert cross_entropy(np.full(256, 9), histogram(np.array([5, 7]), 256)) == pytest.approx(math.log(256))


def test_is_remembered_per_split_and_made_again_when_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcab" * 100)
    file = prepare(DataSpec(source="text", files=[str(tmp_path / "a.txt")]), tmp_path / "cache")
    ids = np.asarray(file.map())
    expected = cross_entropy(histogram(ids[:400], 256), histogram(ids[400:], 256))
    assert unigram_loss(file, 400, tmp_path / "cache") == pytest.approx(expected, rel=1e-14)
    (kept,) = (tmp_path / "cache").glob("*.unigram.json")
    kept.write_text("{}")
    assert unigram_loss(file, 400, tmp_path / "cache") == pytest.approx(expected, rel=1e-14)
    assert unigram_loss(file, 300, tmp_path / "cache") != unigram_loss(file, 400, tmp_path / "cache")
