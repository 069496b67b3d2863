import itertools
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.patience import PATIENCE_S

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.host_memory import MemoryLimit
from shardyard.workers.messages.rank_status import QUICK
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.trainer import snapshot_cost
from shardyard.workers.trainer.callbacks.snapshotting import Snapshots
from shardyard.workers.trainer.heartbeat import Heartbeat
from shardyard.workers.trainer.instruments import Instruments
from shardyard.workers.trainer.segment_writer import SegmentWriter, SnapshotError, restore
from shardyard.workers.trainer.snapshot_allocation import Allocation
from shardyard.workers.trainer.snapshot_cost import ProcessorTime, StepTime

CPU = torch.device("cpu")


def shards(*dtypes: torch.dtype) -> list[ParamShard]:
    found = []
    for number, dtype in enumerate(dtypes):
        shape = (3 + number, 5)
        tensor = torch.randn(shape, dtype=torch.float64).to(dtype)
        found.append(ParamShard(f"weight{number}", shape, (0, 0), tensor, frozenset()))
    return [*found, ParamShard("none", (4, 5), (4, 0), torch.empty(0, 5), frozenset({"data"}))]


def nothing() -> None:
    """What follows a snapshot, where that does not matter."""


DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def test_a_snapshot_gives_back_every_bit_and_fact(fds: list[int]) -> None:
    state = shards(*DTYPES)
    snapshots = Snapshots(fds, 1, state, CPU, Instruments())
    snapshots.after(4, 1.0, lambda: {"training": {"step": 4}}, nothing)
    snapshots.settle()
    before = [shard.tensor.clone() for shard in state]
    for shard in state:
        shard.tensor.zero_()
    assert restore(fds, 4, state) == {"training": {"step": 4}}
    assert all(torch.equal(shard.tensor, old) for shard, old in zip(state, before, strict=True))


def test_what_follows_a_snapshot_finds_it_whole(fds: list[int]) -> None:
    snapshots = Snapshots(fds, 2, shards(torch.float32), CPU, Instruments())
    found = []
    for step in range(1, 5):
        assert snapshots.due(step) == (step % 2 == 1)
        snapshots.after(step, 1.0, dict, lambda: found.append(shared_memory.steps(fds)))
        snapshots.settle()
    assert found == [[1], [1, 3]]


def test_slots_take_turns_and_the_two_newest_stay(fds: list[int]) -> None:
    state = shards(torch.float32)
    snapshots = Snapshots(fds, 2, state, CPU, Instruments())
    seen = []
    for step in range(1, 8):
        state[0].tensor.fill_(step)
        snapshots.after(step, 1.0, dict, nothing)
        snapshots.settle()
        seen.append(shared_memory.steps(fds))
    assert seen == [[1], [1], [1, 3], [1, 3], [3, 5], [3, 5], [5, 7]]
    restore(fds, 5, state)
    assert torch.equal(state[0].tensor, torch.full((3, 5), 5.0))


def test_one_that_is_not_due_may_be_taken_and_is_whole_then(fds: list[int]) -> None:
    state, followed = shards(torch.float32), list[list[int]]()
    snapshots = Snapshots(fds, 50, state, CPU, Instruments())
    snapshots.after(1, 1.0, dict, nothing)
    assert not snapshots.due(2)
    snapshots.take(2, {"unfinished": True}, lambda: followed.append(shared_memory.steps(fds)))
    assert followed == [[1, 2]] and restore(fds, 2, state) == {"unfinished": True}
    Snapshots([], 50, state, CPU, Instruments()).take(3, {}, lambda: followed.append([]))
    assert followed == [[1, 2], []], "without memory there is none"


def test_growing_facts_get_more_room(fds: list[int]) -> None:
    state = shards(torch.float32)
    snapshots = Snapshots(fds, 1, state, CPU, Instruments())
    for step in range(1, 5):
        snapshots.after(step, 1.0, lambda step=step: {"text": "x" * 9000 * step}, nothing)
        snapshots.settle()
    assert len(restore(fds, 4, state)["text"]) == 36000
    assert len(restore(fds, 3, state)["text"]) == 27000


def test_what_does_not_fit_is_refused(fds: list[int]) -> None:
    snapshots = Snapshots(fds, 1, shards(torch.float32), CPU, Instruments())
    snapshots.after(1, 1.0, dict, nothing)
    snapshots.settle()
    with pytest.raises(SnapshotError, match="step 2"):
        restore(fds, 2, shards(torch.float32))
    with pytest.raises(SnapshotError, match="another layout"):
        restore(fds, 1, shards(torch.bfloat16))


def test_none_are_taken_without_slots_or_where_they_are_off(fds: list[int]) -> None:
    for snapshots in (
        Snapshots([], 1, shards(torch.float32), CPU, Instruments()),
        Snapshots(fds, 0, shards(torch.float32), CPU, Instruments()),
    ):
        snapshots.after(1, 1.0, dict, nothing)
        snapshots.settle()
    assert shared_memory.steps(fds) == []


def test_memory_that_cannot_be_had_ends_the_snapshots_not_the_run(
    fds: list[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(fd: int, size: int) -> None:
        raise OSError(28, f"No space left on device for {size} bytes of {fd}")

    monkeypatch.setattr(shared_memory, "reserve", none_left)
    snapshots = Snapshots(fds, 1, shards(torch.float32), CPU, Instruments())
    followed = []
    for step in (1, 2, 3):
        snapshots.after(step, 1.0, dict, lambda step=step: followed.append(step))
        snapshots.settle()
    assert followed == [1, 2, 3]
    assert capsys.readouterr().out.count("no more snapshots") == 1
    assert shared_memory.steps(fds) == []


class Observed(Heartbeat):
    """Sets `slow` at the begin of a phase that may take long."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = threading.Event()

    def update(self, phase: str, step: int) -> None:
        super().update(phase, step)
        if phase not in QUICK:
            self.slow.set()


def test_a_wait_for_a_snapshot_has_the_time_of_a_slow_phase(fds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones pin hundreds of gigabytes."""
    heartbeat, seen = Observed(), []

    def write(*_: Any) -> float:
        seen.append(heartbeat.slow.wait(PATIENCE_S))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SegmentWriter, "write", write)
    snapshots = Snapshots(fds, 1, shards(torch.float32), CPU, Instruments(heartbeat=heartbeat))
    heartbeat.update("step", 2)
    snapshots.after(1, 1.0, dict, nothing)
    snapshots.settle()
    assert seen == [True] and (heartbeat.phase, heartbeat.step) == ("step", 2)


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def interval(fds: list[int], busy_s: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """Steps between two snapshots that a rank chooses whose steps take a second and compute `busy_s`, beside copies of 10 ms."""
    used = itertools.count()
    monkeypatch.setattr(snapshot_cost, "time", SimpleNamespace(process_time=lambda: (busy_s + 0.01) * next(used)))
    monkeypatch.setattr(SegmentWriter, "write", lambda *_: 0.01)
    snapshots = Snapshots(fds, None, shards(torch.float32), CPU, Instruments())
    for step in range(1, ProcessorTime.steps + 1):
        snapshots.after(step, 1.0, dict, nothing)
    snapshots.settle()
    return next(step for step in range(4, 100_000) if snapshots.due(step)) - ProcessorTime.steps


@pytest.mark.parametrize(("busy_s", "steps"), [(1.5, 1), (0.6, 2), (0.3, 4), (0.05, 10), (0.0, 10)])
def test_the_copies_share_is_one_of_the_processor_time_of_a_step(
    fds: list[int], alone: None, busy_s: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that share a core compute for a part of each step, so they need more steps until a copy of 10 ms is 1% of their CPU time."""
    assert interval(fds, busy_s, monkeypatch) == steps


def taken(fds: list[int], longer: float) -> list[int]:
    """Steps after which snapshots are taken whose copies make a step of a second this much longer. The first steps take long."""
    weight = ParamShard("w", (1 << 22,), (0,), torch.ones(1 << 22), frozenset())
    snapshots, found = Snapshots(fds, None, [weight], CPU, Instruments()), list[int]()
    snapshots.cost = StepTime()
    for step in range(1, 41):
        copying = found[-1:] == [step - 1]
        snapshots.settle()
        if snapshots.due(step):
            found.append(step)
        snapshots.after(step, 30.0 if step < 4 else 1.0 + longer * copying, dict, nothing)
    snapshots.settle()
    return found


def test_a_copy_beside_the_steps_costs_nothing(fds: list[int], alone: None) -> None:
    """However long it takes: 16 MB for each of these steps, of which none is longer."""
    assert taken(fds, longer=0.0) == [1, 2, 4, 6, 8, 10, 12, *range(14, 41)]


def test_snapshots_make_the_steps_2_percent_longer(fds: list[int], alone: None) -> None:
    assert taken(fds, longer=0.09) == [1, 2, 4, 6, 8, 10, 12, 14, 19, 24, 29, 34, 39]


def test_100_snapshots_map_each_segment_once(fds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    mapped, original = [], shared_memory.mapped
    monkeypatch.setattr(shared_memory, "mapped", lambda *given: mapped.append(given) or original(*given))
    snapshots = Snapshots(fds, 1, shards(*DTYPES), CPU, Instruments())
    for step in range(1, 101):
        snapshots.after(step, 1.0, lambda step=step: {"text": "x" * (step * 7919 % 40000)}, nothing)
        snapshots.settle()
    snapshots.close()
    assert len(mapped) == shared_memory.COUNT
    assert shared_memory.steps(fds) == [99, 100]


def test_refused_memory_ends_the_snapshots_and_frees_what_was_allocated(fds: list[int], alone: None) -> None:
    tight = MemoryLimit("pod", "memory.max of the cgroup /pod", 1 << 30, 1 << 20)
    snapshots = Snapshots(fds, None, shards(torch.float32), CPU, Instruments())
    shared_memory.reserve(fds[0], 8192)
    refusal = snapshots.allocate(Allocation(limits=lambda: (tight,)))
    assert refusal is not None and "1.0 MB of 1.1 GB are free" in refusal
    assert not snapshots.due(1) and sum(map(shared_memory.allocated, fds)) == 0
    snapshots.after(1, 1.0, dict, nothing)
    snapshots.close()
    assert shared_memory.steps(fds) == []


def test_snapshots_that_are_off_ask_for_no_memory(fds: list[int]) -> None:
    assert Snapshots(fds, 0, shards(torch.float32), CPU, Instruments()).allocate(Allocation()) is None
    assert sum(map(shared_memory.allocated, fds)) == 0
