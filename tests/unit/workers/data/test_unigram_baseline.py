import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from shardyard.workers.data import unigram_baseline
from shardyard.workers.data.errors import DataError
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
    content = json.loads(kept.read_text())
    assert content == {"sha256": file.sha256, "unigram_loss": pytest.approx(expected, rel=1e-14)}
    kept.write_text(
        json.dumps({**content, "unigram_loss": 1.5, "train_counts": [1, 2]})
    )  # as earlier versions wrote it
    assert unigram_loss(file, 400, tmp_path / "cache") == 1.5
    kept.write_text("{}")
    assert unigram_loss(file, 400, tmp_path / "cache") == pytest.approx(expected, rel=1e-14)
    assert unigram_loss(file, 300, tmp_path / "cache") != unigram_loss(file, 400, tmp_path / "cache")


@pytest.mark.parametrize("failure", [errno.EROFS, errno.EACCES, errno.ENOSPC], ids=lambda code: errno.errorcode[code])
def test_a_cache_that_cannot_be_written(failure: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was prepared for reading only has no baseline for another split; a full disk is an error with a remedy."""
    (tmp_path / "a.txt").write_text("abcab" * 100)
    file = prepare(DataSpec(source="text", files=[str(tmp_path / "a.txt")]), tmp_path / "cache")
    known = unigram_loss(file, 400, tmp_path / "cache")

    def failed(path: Path, *_: object) -> None:
        raise OSError(failure, os.strerror(failure), str(path))

    monkeypatch.setattr(unigram_baseline, "write_whole", failed)
    assert unigram_loss(file, 400, tmp_path / "cache") == known
    if failure != errno.ENOSPC:
        assert unigram_loss(file, 300, tmp_path / "cache") is None
        return
    with pytest.raises(DataError, match="No space left") as caught:
        unigram_loss(file, 300, tmp_path / "cache")
    assert caught.value.code == "cache_unwritable"
