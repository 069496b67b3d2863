"""A corpus that is too short is refused, and only such a one."""

from pathlib import Path

import pytest

from shardyard.workers.data import split_lengths
from shardyard.workers.data.corpus import Source
from shardyard.workers.data.errors import DataError
from shardyard.workers.data.split_lengths import check, measure, training_tokens, windows
from shardyard.workers.data.tokenizer import ByteTokenizer
from shardyard.workers.spec import DataSpec


def spec(seq_len: int, validation: float) -> DataSpec:
    return DataSpec(seq_len=seq_len, validation=validation)


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0), (1, 0), (8, 0), (9, 1), (16, 1), (17, 2)])
def test_each_input_of_a_window_has_a_token_after_it(tokens: int, expected: int) -> None:
    assert windows(tokens, 8) == expected


def test_the_shortest_corpus_that_fills_both_splits_is_the_limit() -> None:
    given = spec(8, 0.25)
    fits = [count for count in range(100) if not refused(count, given)]
    shortest = fits[0]
    assert fits == list(range(shortest, 100))
    train = training_tokens(shortest, given)
    assert min(train, shortest - train) >= 9
    before = training_tokens(shortest - 1, given)
    assert min(before, shortest - 1 - before) < 9


def test_a_refusal_names_the_split_its_tokens_and_the_remedy() -> None:
    with pytest.raises(DataError) as caught:
        check(20, spec(8, 0.25))
    assert (caught.value.code, caught.value.field) == ("corpus_too_short", "data.seq_len")
    assert "validation split has 5 of the corpus' 20 tokens" in str(caught.value)


def test_a_large_corpus_is_measured_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text"
    path.write_text("a" * 30)
    files, tokenizer = [Source(path)], ByteTokenizer()
    monkeypatch.setattr(split_lengths, "EXACT_BYTES", 10)
    monkeypatch.setattr(split_lengths, "token_ids", None)  # is not called: nothing is encoded
    measure(files, tokenizer, spec(4, 0.25))
    with pytest.raises(DataError, match="at most"):
        measure(files, tokenizer, spec(20, 0.25))


def refused(tokens: int, given: DataSpec) -> bool:
    try:
        check(tokens, given)
    except DataError:
        return True
    return False
