import os
import random

import pytest
import torch
from harness.counted_pinning import CountedPinning, mappings_of

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.snapshot import header, shared_memory
from shardyard.workers.trainer.segment_writer import FACTS_ROOM, SegmentWriter, SnapshotError, restore

CPU = torch.device("cpu")


@pytest.fixture
def shards() -> list[ParamShard]:
    weight = ParamShard("weight", (30, 5), (0, 0), torch.randn(30, 5), frozenset())
    return [weight, ParamShard("scale", (7,), (0,), torch.randn(7).bfloat16(), frozenset())]


def facts(step: int, size: int) -> dict[str, object]:
    return {"training": {"step": step}, "events": "x" * size}


def test_100_snapshots_need_one_mapping_and_one_registration_per_segment(
    fds: list[int], shards: list[ParamShard]
) -> None:
    pinning, sizes = CountedPinning(), random.Random(0)
    writer = SegmentWriter(fds, shards, CPU, pinning)
    where = set()
    for step in range(1, 101):
        size = sizes.randrange(FACTS_ROOM - 1000)
        writer.write(step, facts(step, size), None)
        where |= {mapping for fd in fds for mapping in mappings_of(fd)}
        if step % 10 == 0:
            assert restore(fds, step, shards) == facts(step, size)
    assert len(where) == pinning.registrations == shared_memory.COUNT
    writer.close()
    assert pinning.registered == {} and [mappings_of(fd) for fd in fds] == [[], []]
    assert shared_memory.steps(fds) == [99, 100], "they stay complete"


def test_facts_that_outgrow_their_room_move_each_segment_once(fds: list[int], shards: list[ParamShard]) -> None:
    pinning = CountedPinning()
    writer = SegmentWriter(fds, shards, CPU, pinning)
    for step in range(1, 9):
        size = 3 * FACTS_ROOM if step in (4, 8) else step * 1000
        writer.write(step, facts(step, size), None)
        assert [len(mappings_of(fd)) for fd in fds] == [1, min(step - 1, 1)]
        assert restore(fds, step, shards) == facts(step, size)
        if step > 1:
            assert restore(fds, step - 1, shards)["training"] == {"step": step - 1}
    assert (pinning.registrations, pinning.unregistrations) == (3, 1), "the segment of steps 4 and 8 grew"
    writer.close()
    assert pinning.registered == {}


def test_memory_that_cannot_be_pinned_is_reported_once_and_used(
    fds: list[int], shards: list[ParamShard], capsys: pytest.CaptureFixture[str]
) -> None:
    writer = SegmentWriter(fds, shards, CPU, CountedPinning(code=304))
    for step in range(1, 5):
        writer.write(step, facts(step, 10), None)
    writer.close()
    out = capsys.readouterr().out
    assert out.count("cudaHostRegister returned error 304") == 1 and len(out.splitlines()) == 1
    assert restore(fds, 4, shards) == facts(4, 10)


def test_the_next_trainer_maps_what_the_last_one_allocated(fds: list[int], shards: list[ParamShard]) -> None:
    first = SegmentWriter(fds, shards, CPU, CountedPinning())
    first.write(1, facts(1, 3 * FACTS_ROOM), None)
    first.close()
    before = shards[0].tensor.clone()
    shards[0].tensor.zero_()
    assert restore(fds, 1, shards) == facts(1, 3 * FACTS_ROOM) and torch.equal(shards[0].tensor, before)
    second = SegmentWriter(fds, shards, CPU, CountedPinning())
    for step in (2, 3):
        second.write(step, facts(step, 10), None)
    second.close()
    assert shared_memory.steps(fds) == [2, 3] and restore(fds, 3, shards) == facts(3, 10)


def test_rank_actors_read_padded_facts(fds: list[int], shards: list[ParamShard]) -> None:
    writer = SegmentWriter(fds, shards, CPU)
    for step, size in ((1, 5000), (2, 10), (3, 10)):
        writer.write(step, facts(step, size), None)
    writer.close()
    found = [header.read(fd) for fd in fds]
    assert [one and one.facts for one in found] == [facts(3, 10), facts(2, 10)]
    assert found[0] is not None
    weight = found[0].slices[0]
    assert os.pread(fds[0], weight.bytes, weight.start) == shards[0].tensor.numpy().tobytes()


def test_memory_is_allocated_at_once_and_freed(fds: list[int], shards: list[ParamShard]) -> None:
    writer = SegmentWriter(fds, shards, CPU)
    whole = writer.bytes
    assert writer.missing == whole > 2 * FACTS_ROOM and sum(map(shared_memory.allocated, fds)) == 0
    writer.allocate()
    assert writer.missing == 0 and sum(map(shared_memory.allocated, fds)) >= whole
    writer.write(1, facts(1, 10), None)
    assert writer.bytes == whole
    writer.close(free=True)
    assert shared_memory.steps(fds) == [] and sum(map(shared_memory.allocated, fds)) == 0


def test_a_snapshot_of_another_layout_is_refused(fds: list[int], shards: list[ParamShard]) -> None:
    SegmentWriter(fds, shards, CPU).write(1, facts(1, 10), None)
    with pytest.raises(SnapshotError, match="another layout"):
        restore(fds, 1, shards[:1])
    assert len(mappings_of(fds[0])) <= 1
