"""The samples of a user's source: their order, their seeds, and what is refused before the first step."""

import importlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.workers.data.errors import DataError
from shardyard.workers.data.own_source import OwnSamples, open_samples
from shardyard.workers.data.position import SampleOrder
from shardyard.workers.spec import TrainSpec

ORDER = SampleOrder("", "", 1, 0.0, 7, source="a:b", content="")


class Echo:
    """Samples that are their own index and seed."""

    def __init__(self, samples: int | None = None, validation_samples: int = 0) -> None:
        self.samples, self.validation_samples = samples, validation_samples

    def training(self, indices: Any, seeds: Any) -> dict[str, torch.Tensor]:
        return {"index": torch.from_numpy(indices), "seed": torch.from_numpy(seeds)}

    def validation(self, indices: Any, seeds: Any) -> dict[str, torch.Tensor]:
        return {"index": -torch.from_numpy(indices), "seed": torch.from_numpy(seeds)}


def samples(batch: int, size: int | None = None, held_out: int = 0, seed: int = 7) -> OwnSamples:
    order = SampleOrder("", "", 1, 0.0, seed, source="a:b", content="")
    return OwnSamples(order, batch, Echo(size, held_out), size, held_out)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3))
def test_an_epoch_reads_every_sample_once_and_the_next_one_in_another_order(size: int, batch: int, ranks: int) -> None:
    own = samples(batch * ranks, size)
    read = []
    for first in range(0, 2 * size, batch * ranks):
        parts = [own.batch(first, range(rank, batch * ranks, ranks)) for rank in range(ranks)]
        rows = {
            number: index
            for fields, numbers in parts
            for number, index in zip(numbers.tolist(), fields["index"].tolist(), strict=True)
        }
        read += [rows[number] for number in range(first, first + batch * ranks)]
    assert sorted(read[:size]) == sorted(read[size : 2 * size]) == list(range(size))
    assert size < 8 or read[:size] != read[size : 2 * size]


def test_a_source_without_end_is_read_in_its_order() -> None:
    fields, numbers = samples(4).batch(1_000_000, slice(1, 3))
    assert fields["index"].tolist() == numbers.tolist() == [1_000_001, 1_000_002]


def test_a_seed_is_of_the_sample_and_not_of_the_index() -> None:
    own = samples(4, size=4)
    first, later = (own.batch(start, slice(None))[0] for start in (0, 4))
    assert sorted(first["index"].tolist()) == sorted(later["index"].tolist())
    assert not set(first["seed"].tolist()) & set(later["seed"].tolist())
    assert first["seed"].tolist() == own.batch(0, slice(None))[0]["seed"].tolist()
    assert first["seed"].tolist() != samples(4, size=4, seed=8).batch(0, slice(None))[0]["seed"].tolist()


def test_validation_is_the_same_for_every_seed() -> None:
    one, other = (samples(4, 4, held_out=6, seed=seed).validation(1, slice(None))[0] for seed in (7, 8))
    assert all(torch.equal(one[name], other[name]) for name in one)
    whole = [samples(3, 4, held_out=6).validation(number, slice(None))[0]["index"] for number in (0, 1)]
    assert sorted((-torch.cat(whole)).tolist()) == list(range(6))


class Slow(Echo):
    """It reads training samples until validation samples are read beside them, or for a while."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.began, self.beside, self.overlapped = threading.Event(), threading.Event(), False

    def training(self, indices: Any, seeds: Any) -> dict[str, torch.Tensor]:
        self.began.set()
        self.overlapped = self.beside.wait(0.2)
        return super().training(indices, seeds)

    def validation(self, indices: Any, seeds: Any) -> dict[str, torch.Tensor]:
        self.beside.set()
        return super().validation(indices, seeds)


def test_a_source_is_called_by_one_thread_at_a_time() -> None:
    source = Slow()
    own = OwnSamples(ORDER, 4, source, 4, 4)
    ahead = threading.Thread(target=own.batch, args=(0, slice(None)))
    ahead.start()
    assert source.began.wait(10)
    own.validation(0, slice(None))
    ahead.join()
    assert source.beside.is_set() and not source.overlapped


SOURCE = """
import torch
class Source:
    samples = {samples}
    validation_samples = {held_out}
    calls = 0
    room = torch.zeros(4, dtype=torch.int64)
    def filled(self, values):
        self.room[: len(values)] = torch.from_numpy(values)
        return self.room[: len(values)]
    def training(self, indices, seeds):
        self.calls += 1
        return {returned}
def make(number=1): return Source()
"""


def opened(
    folder: Path, name: str, returned: str, count: object = 9, held_out: object = 0, batch: int = 4, **options: Any
) -> OwnSamples:
    (folder / f"{name}.py").write_text(SOURCE.format(samples=count, held_out=held_out, returned=returned))
    importlib.invalidate_caches()  # a folder that changed twice within a tick of the clock looks unchanged
    spec = {
        "model": {"import": f"{name}:model", "code": str(folder)},
        "data": {"source": f"{name}:make", "options": options},
        "steps": 1,
        "global_batch": batch,
    }
    return open_samples(TrainSpec.model_validate(spec))


@pytest.mark.parametrize(
    ("returned", "more", "message"),
    [
        ("{}", {}, "it returned a dict, not one tensor per name"),
        ("[1]", {}, "it returned a list"),
        ("{'x': 3}", {}, "'x' is a int, not a tensor"),
        ("{'x': torch.zeros(())}", {}, r"'x' is \(\) on cpu, not 2 rows"),
        ("{'x': torch.zeros(len(indices), device='meta')}", {}, "on meta, not 2 rows on the CPU"),
        ("{'x': torch.full((len(indices),), self.calls)}", {}, "'x' of sample 0 differs"),
        ("{'x': torch.arange(len(indices), 0, -1)}", {}, "'x' of sample 0 differs"),
        ("{'x': self.filled(indices)}", {}, "'x' is in memory that the source fills again; return new tensors"),
        ("{'x': self.filled(indices)}", {"batch": 1}, "'x' is in memory that the source fills again"),
        ("{'x': torch.eye(len(indices)).to_sparse()}", {}, "'x' is torch.sparse_coo, not a dense tensor"),
        ("1 / 0", {}, "training samples 0 to 1: ZeroDivisionError: division by zero"),
        ("{}", {"count": 0}, "samples = 0, which must be a whole number of 1 or more, or None"),
        ("{}", {"count": "True"}, "samples = True"),
        ("{}", {"count": "9.0"}, "samples = 9.0, which must be a whole number"),
        ("{}", {"held_out": "False"}, "validation_samples = False, which must be a whole number of 0 or more"),
        ("{}", {"held_out": None}, "validation_samples = None"),
        ("{}", {"count": "'9'"}, "samples = '9'"),
        ("{}", {"held_out": -1}, "validation_samples = -1"),
        ("{}", {"held_out": 5}, "5 validation samples, and no method validation"),
    ],
)
def test_what_cannot_be_used_names_the_source(
    returned: str, more: Any, message: str, tmp_path: Path, request: Any
) -> None:
    name = f"unusable_{abs(hash(request.node.name))}"
    with pytest.raises(DataError, match=message) as refused:
        opened(tmp_path, name, returned, **more)
    assert refused.value.field == "data.source" and f"{name}:make" in refused.value.message


def test_missing_values_are_the_same_when_they_are_read_again(tmp_path: Path) -> None:
    assert opened(tmp_path, "with_gaps", "{'x': torch.full((len(indices), 3), float('nan'))}").batch(0, [0])


@pytest.mark.parametrize("kind", ["__import__('numpy').int64(9)", "__import__('numpy').uint8(9)", "torch.tensor(9)"])
def test_integers_of_other_libraries_are_sizes(kind: str, tmp_path: Path, request: Any) -> None:
    name = f"integer_{abs(hash(request.node.name))}"
    own = opened(tmp_path, name, "{'x': torch.from_numpy(indices)}", count=kind)
    assert type(own.train_windows) is int and own.train_windows == own.train_tokens == 9
    plain = opened(tmp_path, name, "{'x': torch.from_numpy(indices)}")
    assert own.order == plain.order


def test_options_and_sizes_are_part_of_the_order(tmp_path: Path) -> None:
    content = "{'x': torch.from_numpy(indices)}"
    orders = [
        opened(tmp_path, "order_one", content).order.content,
        opened(tmp_path, "order_one", content, number=2).order.content,
        opened(tmp_path, "order_two", content, count=10).order.content,
    ]
    assert len(set(orders)) == 3
    assert opened(tmp_path, "order_one", content).order.content == orders[0]
    np.testing.assert_array_equal(opened(tmp_path, "order_three", content, count=None).batch(5, [0])[0]["x"], [5])
