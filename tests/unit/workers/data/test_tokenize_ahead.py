"""What is prepared before a job starts, so that its gang does not hold devices for it. The process: test_warm_corpora.py."""

from pathlib import Path

import pytest

from shardyard.workers.data.split_lengths import training_tokens
from shardyard.workers.data.token_cache import prepare
from shardyard.workers.data.tokenize_ahead import prepare_all
from shardyard.workers.spec import DataSpec


def test_a_start_finds_tokens_and_unigram_loss(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcab" * 100)
    spec, cache = DataSpec(source="text", files=[str(tmp_path / "a.txt")]), tmp_path / "cache"
    prepare_all(spec, cache)
    file = prepare(spec, cache)
    assert (cache / f"{file.key}-{training_tokens(file.tokens, spec)}.unigram.json").exists()


@pytest.mark.filterwarnings("error")
def test_a_text_without_a_validation_split_is_left_to_the_job(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    prepare_all(DataSpec(source="text", files=[str(tmp_path / "a.txt")]), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.unigram.json"))
