"""What of a broken gang's memory makes up a checkpoint. With real gangs: tests/parity/test_emergency_checkpoint.py."""

import asyncio
import random
from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from shardyard.workers.checkpoint.errors import CheckpointError
from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.snapshot.header import StoredSlice
from shardyard.workers.supervisor import emergency_checkpoint
from shardyard.workers.supervisor.emergency_checkpoint import BrokenGang, _write, divided, save_and_emit
from shardyard.workers.supervisor.event_merger import EventMerger


def stored(name: str, offset: int, size: int, whole: int = 8) -> StoredSlice:
    return StoredSlice(name, (offset,), (size,), "torch.float32", (whole,), 4096, 4 * size)


def test_each_slice_is_written_once_by_the_first_that_holds_it() -> None:
    first, second = stored("w", 0, 4), stored("w", 4, 4)
    assert divided({3: [second], 0: [first], 1: [second], 2: [first]}) == {0: [first], 1: [second]}


def test_a_tensor_with_a_hole_is_not_whole() -> None:
    assert divided({0: [stored("w", 0, 4)]}) is None
    assert divided({0: [stored("w", 0, 8), stored("b", 0, 4)]}) is None
    assert divided({}) is None
    assert divided({0: [stored("w", 0, 4)], 1: [stored("w", 2, 4)]}) is None, (
        "they fill eight elements, but not the tensor"
    )


@pytest.mark.parametrize("cuts", [(512, 1), (1, 512), (64, 8)], ids=["rows", "columns", "grid"])
def test_slices_of_many_ranks_are_compared_with_their_neighbours_alone(
    cuts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, compared = emergency_checkpoint._common, 0

    def common(*slices: tuple[int, ...]) -> bool:
        nonlocal compared
        compared += 1
        return usual(*slices)

    monkeypatch.setattr(emergency_checkpoint, "_common", common)
    whole = (1024, 1024)
    size = (1024 // cuts[0], 1024 // cuts[1])
    held = [
        StoredSlice("w", (row * size[0], column * size[1]), size, "torch.float32", whole, 0, 0)
        for row, column in product(range(cuts[0]), range(cuts[1]))
    ]
    random.Random(0).shuffle(held)
    found = divided({rank: [one] for rank, one in enumerate(held)})
    assert found == {rank: [one] for rank, one in enumerate(held)}
    assert compared <= 8 * len(held)


def test_slices_that_fill_a_tensor_and_overlap_in_one_dimension_alone_are_not_whole() -> None:
    def at(row: int, column: int, size: tuple[int, int]) -> StoredSlice:
        return StoredSlice("w", (row, column), size, "torch.float32", (4, 4), 0, 0)

    quarters = [at(0, 0, (2, 2)), at(0, 2, (2, 2)), at(2, 0, (2, 2)), at(2, 2, (2, 2))]
    assert divided(dict(enumerate([one] for one in quarters))) is not None
    assert divided(dict(enumerate([one] for one in (*quarters[:3], at(1, 1, (2, 2)))))) is None
    scalar = StoredSlice("step", (), (), "torch.float32", (), 0, 4)
    assert divided({0: [scalar], 1: [scalar]}) == {0: [scalar]}


def test_who_holds_nothing_of_a_tensor_knows_it_by_name() -> None:
    """Of a tensor that is cut into fewer parts than there are ranks some hold an empty piece."""
    assert divided({0: [stored("w", 0, 8)], 1: [stored("w", 8, 0)]}) == {0: [stored("w", 0, 8)]}
    assert divided({1: [stored("w", 8, 0)]}) is None


def test_each_stage_must_have_left_a_rank() -> None:
    broken = BrokenGang({"train": {"layout": {"pipeline": 2}}}, 8, EventMerger(Spool(1 << 20), 8))
    assert broken.complete([1, 6])
    assert not broken.complete([0, 1, 2, 3])


def test_each_parameter_server_must_be_left() -> None:
    """No other rank names its tensors, so that a checkpoint without them would look whole."""
    layout = {"data": 2, "pipeline": 1, "parameter_server": {"servers": 2}}
    broken = BrokenGang({"train": {"layout": layout}}, 4, EventMerger(Spool(1 << 20), 4))
    assert broken.complete([2, 3])
    assert not broken.complete([0, 1, 2])


async def test_what_a_program_has_in_memory_is_not_saved() -> None:
    program = BrokenGang({"job": "j-1", "command": ["a"]}, 2, EventMerger(Spool(1 << 20), 2))
    assert (
        await save_and_emit([], program)
        == "the command starts again, and continues from its newest checkpoint if it has one"
    )


async def test_a_write_that_fails_leaves_no_files_of_the_others() -> None:
    """Saves of the next attempt are of earlier steps, and make room of theirs alone."""
    from ray.exceptions import ActorDiedError

    written, discarded = list[str](), list[str]()

    class Snapshots:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        async def write_out(self, rank: int, step: int, wanted: Any, where: str, name: str) -> None:
            await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
            await asyncio.sleep(0)
            written.append(name)

        async def discard(self, where: str, step: int, names: Sequence[str]) -> None:
            if self.error is not None:
                raise ActorDiedError
            assert written, "the others have ended"
            discarded.extend(names)

    gang: Any = {
        rank: SimpleNamespace(snapshots=Snapshots(error)) for rank, error in enumerate((TimeoutError("slow"), None))
    }
    headers: Any = {0: SimpleNamespace(step=7), 1: SimpleNamespace(step=7)}
    broken = BrokenGang({"checkpoints": "/c"}, 2, EventMerger(Spool(1 << 20), 2))
    with pytest.raises(CheckpointError, match="could not be written: slow"):
        await _write(gang, headers, {0: [], 1: []}, broken, 0.0)
    assert len(discarded) == 2 and set(written) < set(discarded)


async def test_storage_that_does_not_answer_one_actor_is_asked_by_no_other() -> None:
    asked = 0

    class Snapshots:
        async def write_out(self, *what: Any) -> None:
            raise TimeoutError

        async def discard(self, *what: Any) -> None:
            nonlocal asked
            asked += 1
            raise TimeoutError

    gang: Any = {rank: SimpleNamespace(snapshots=Snapshots()) for rank in range(3)}
    headers: Any = {rank: SimpleNamespace(step=7) for rank in range(3)}
    broken = BrokenGang({"checkpoints": "/c"}, 3, EventMerger(Spool(1 << 20), 3))
    with pytest.raises(CheckpointError, match="could not be written: TimeoutError"):
        await _write(gang, headers, {rank: [] for rank in range(3)}, broken, 0.0)
    assert asked == 1
