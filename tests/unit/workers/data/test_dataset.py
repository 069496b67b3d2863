import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from harness.patience import PATIENCE_S
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.workers.data.dataset import Tokens, open_tokens
from shardyard.workers.data.errors import DataError
from shardyard.workers.data.position import SampleOrder
from shardyard.workers.spec import DataSpec


def tokens(train: int = 103, held_out: int = 31, seq_len: int = 5, seed: int = 0, global_batch: int = 4) -> Tokens:
    """A corpus whose every token is its own place, so that a window says where it is from."""
    return Tokens(
        order=SampleOrder("k", "bytes", seq_len, 0.05, seed),
        vocab=1 << 16,
        global_batch=global_batch,
        unigram_loss=0.0,
        train=np.arange(train, dtype="<u2"),
        held_out=np.arange(train, train + held_out, dtype="<u2"),
    )


def starts(found: tuple[torch.Tensor, torch.Tensor]) -> list[int]:
    return found[0][:, 0].tolist()


def test_targets_are_the_next_tokens() -> None:
    inputs, targets = tokens().batch(0, slice(None))
    assert inputs.shape == targets.shape == (4, 5)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.is_contiguous()
    assert targets.is_contiguous()
    assert torch.equal(targets, inputs + 1)
    assert all(start % 5 == 0 for start in inputs[:, 0].tolist())


@settings(deadline=None)
@given(st.integers(6, 300), st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
def test_each_epoch_sees_every_window_once(length: int, seq_len: int, global_batch: int, seed: int) -> None:
    data = tokens(train=length, seq_len=seq_len, global_batch=global_batch, seed=seed)
    windows = (length - 1) // seq_len
    assert data.train_windows == windows
    firsts = range(0, 2 * windows, global_batch)
    seen = [start for first in firsts for start in starts(data.batch(first, slice(None)))]
    every = [window * seq_len for window in range(windows)]
    assert sorted(seen[:windows]) == every
    assert sorted(seen[windows : 2 * windows]) == every


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    data, windows = tokens(train=1001, global_batch=200), 200
    assert data.train_windows == windows
    first, second = starts(data.batch(0, slice(None))), starts(data.batch(200, slice(None)))
    assert first != second
    assert first != starts(tokens(train=1001, global_batch=200, seed=1).batch(0, slice(None)))
    assert first != sorted(first)


@settings(deadline=None)
@given(st.integers(0, 10**9), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_sample_is_the_same_in_whatever_batch(first: int, batches: list[int]) -> None:
    whole = starts(tokens(global_batch=sum(batches)).batch(first, slice(None)))
    parts, at = [], first
    for batch in batches:
        parts += starts(tokens(global_batch=batch).batch(at, slice(None)))
        at += batch
    assert parts == whole


@settings(deadline=None)
@given(st.integers(0, 10**9), st.permutations(list(range(12))))
def test_a_row_is_the_same_for_every_reader(first: int, order: list[int]) -> None:
    data = tokens(global_batch=12)
    whole, _ = data.batch(first, slice(None))
    mixed, _ = data.batch(first, np.array(order))
    assert torch.equal(mixed, whole[order])
    for ranks in (2, 3, 4):
        shares = [data.batch(first, range(rank, 12, ranks))[0] for rank in range(ranks)]
        assert all(torch.equal(share, whole[rank::ranks]) for rank, share in enumerate(shares))
    assert torch.equal(data.batch(first, slice(4, 8))[0], whole[4:8])


def test_no_rows_are_an_empty_batch() -> None:
    assert tokens().batch(0, range(0))[0].shape == (0, 5)


@pytest.mark.parametrize("rows", [range(4, 5), np.array([-1])])
def test_rows_outside_the_global_batch_are_refused(rows: object) -> None:
    with pytest.raises(IndexError):
        tokens().batch(0, rows)


def test_validation_reads_the_held_out_tokens_in_one_order_for_all_seeds() -> None:
    one, other = tokens(seed=1, global_batch=3), tokens(seed=2, global_batch=3)
    assert one.validation_windows == 6
    batches = [one.validation(i, slice(None)) for i in range(2)]
    assert sorted(start for batch in batches for start in starts(batch)) == [103 + 5 * i for i in range(6)]
    for i, batch in enumerate(batches):
        assert torch.equal(batch[0], other.validation(i, slice(None))[0])
        assert torch.equal(batch[1], batch[0] + 1)


def test_validation_is_the_end_of_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 900 + "b" * 99)
    spec = DataSpec(source="text", files=[str(tmp_path / "a.txt")], seq_len=8, validation=0.1)
    data = open_tokens(spec, tmp_path / "cache", seed=0, global_batch=2)
    assert (data.train_tokens, data.validation_tokens) == (900, 100)
    assert (data.train_windows, data.validation_windows) == (112, 12)
    assert set(data.batch(0, slice(None))[0].flatten().tolist()) == {ord("a")}
    assert data.validation(0, slice(None))[0].unique().tolist()[-1] == ord("b")
    assert data.unigram_loss > 4


@pytest.mark.parametrize(("length", "validation", "split"), [(40, 0.05, "validation"), (40, 0.9, "train")])
def test_a_split_shorter_than_a_window_is_refused(tmp_path: Path, length: int, validation: float, split: str) -> None:
    (tmp_path / "a.txt").write_text("a" * length)
    spec = DataSpec(source="text", files=[str(tmp_path / "a.txt")], seq_len=8, validation=validation)
    with pytest.raises(DataError) as caught:
        open_tokens(spec, tmp_path / "cache", seed=0, global_batch=2)
    assert caught.value.code == "corpus_too_short"
    assert f"The {split} split" in caught.value.message


def test_another_process_reads_the_same_batches(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from shardyard.workers.data.dataset import open_tokens
from shardyard.workers.spec import DataSpec
data = open_tokens(DataSpec(seq_len=16), Path(sys.argv[1]), seed=3, global_batch=4)
print(data.order.corpus, [data.batch(first, slice(None))[0].tolist() for first in (0, 77, 10**6)])
"""
    runs = []
    for seed in ("1", "2"):
        process = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "cache")],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={"PYTHONHASHSEED": seed},
        )
        assert process.returncode == 0, process.stderr
        runs.append(process.stdout)
    assert runs[0] == runs[1]
    data = open_tokens(DataSpec(seq_len=16), tmp_path / "cache", seed=3, global_batch=4)
    assert runs[0].split()[0] == data.order.corpus
    assert runs[0].split(maxsplit=1)[1].strip() == str(
        [data.batch(first, slice(None))[0].tolist() for first in (0, 77, 10**6)]
    )


def test_packed_documents_know_their_end_and_read_the_same_windows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first " * 40)
    (tmp_path / "b.txt").write_text("second " * 40)
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    found = {
        kind: open_tokens(
            DataSpec(source="text", files=files, seq_len=32, validation=0.3, documents=kind),
            tmp_path / "cache",
            seed=0,
            global_batch=4,
        )
        for kind in ("joined", "packed")
    }
    joined, packed = found["joined"], found["packed"]
    assert joined.end is None and packed.end == 255
    assert packed.train[240] == 255 and joined.train[240] == 10
    different = torch.cat(joined.batch(0, slice(None))) != torch.cat(packed.batch(0, slice(None)))
    assert (torch.cat(packed.batch(0, slice(None)))[different] == 255).all()
    assert joined.order.tokenizer != packed.order.tokenizer
