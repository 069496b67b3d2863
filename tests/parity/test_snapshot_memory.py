"""Ranks that share too little memory train on without snapshots, all of them alike, and with the same losses."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from harness.memory_cgroup import memory_cgroup
from harness.models import LLAMA
from harness.ranks import group, spawn, train

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.snapshots import rank_bytes
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.host_memory import MemoryLimit
from shardyard.workers.snapshot import header, shared_memory
from shardyard.workers.spec import Run, TrainSpec

ROOM = MemoryLimit("node", "the host's memory", 1 << 40, 1 << 39)
TIGHT = MemoryLimit("pod", "memory.max of the cgroup /pod", 64 << 20, 1 << 20)


def train_beside(rank: int, world: int, port: int, orders: str, how: str) -> dict[str, Any]:
    """Train with segments of this rank's own. `how`: only rank 1 has little memory, or only it gets an error; or the cgroup to join."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory
    from shardyard.workers.trainer.snapshot_allocation import Allocation

    allocation, fds = Allocation(), shared_memory.allocate()
    if how == "tight":
        allocation = Allocation(limits=lambda: (TIGHT if rank == 1 else ROOM,))
    elif how == "error" and rank == 1:
        fds[0] = os.memfd_create("full", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(fds[0], fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)  # no memory can be allocated for it
    elif how.startswith("/"):
        Path(how, "cgroup.procs").write_text(str(os.getpid()))
    run = Run.model_validate_json(orders)
    events: list[Any] = []
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    memory = SnapshotMemory(fds, allocation=allocation)
    assemble(built, lambda kind, data: events.append((kind, data)), Instruments(), memory).run()
    return {
        "events": events,
        "steps": shared_memory.steps(fds),
        "allocated": sum(map(shared_memory.allocated, fds)),
        "tensors": sum(one.bytes for found in map(header.read, fds) if found for one in found.slices),
    }


def orders(spec: dict[str, Any], folder: Path) -> str:
    train = TrainSpec.model_validate(spec)
    return Run(job="a", train=train, checkpoints=str(folder / "a"), cache=folder / "cache").model_dump_json()


def refusals(rank: dict[str, Any]) -> list[str]:
    causes = [data for kind, data in rank["events"] if kind == "incident"]
    assert {data["cause"] for data in causes} <= {"snapshots_off"}
    return [data["message"] for data in causes]


@pytest.mark.parametrize("how", ["tight", "error"])
def test_one_rank_without_memory_turns_the_snapshots_of_all_ranks_off(how: str, tmp_path: Path, make_spec: Any) -> None:
    spec = make_spec({"data": 2, "zero": 1}, snapshot={"every": 1})
    ranks = spawn(train_beside, 2, orders(spec, tmp_path), how)
    assert [rank["steps"] for rank in ranks] == [[], []] and [rank["allocated"] for rank in ranks] == [0, 0]
    (why,) = refusals(ranks[0])
    assert ("node of rank 1" if how == "tight" else "Rank 1 got no memory") in why and not refusals(ranks[1])
    losses = [data["loss"] for kind, data in ranks[0]["events"] if kind == "step"]
    assert losses == train(make_spec({"data": 2, "zero": 1}), tmp_path, "without")["losses"]


@pytest.mark.parametrize(
    "layout",
    [
        {"data": 3, "zero": 1},
        pytest.param({"data": 2, "zero": 0}, marks=pytest.mark.full),
        pytest.param({"data": 2, "tensor": 2, "zero": 3}, marks=pytest.mark.full),
        pytest.param({"data": 4, "shard": 2, "zero": 3}, marks=pytest.mark.full),
        pytest.param({"pipeline": 2, "data": 2, "zero": 1}, marks=pytest.mark.full),
        pytest.param({"data": 2, "parameter_server": {"servers": 2}}, marks=pytest.mark.full),
        pytest.param({"pipeline": 2, "schedule": "2bw"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_ranks_with_enough_memory_take_snapshots_of_the_planned_size(
    layout: Any, tmp_path: Path, make_spec: Any
) -> None:
    spec = make_spec(layout, snapshot={"every": 1})
    plan = TrainSpec.model_validate(spec)
    ranks = spawn(train_beside, plan.layout.world_size, orders(spec, tmp_path), "")
    last = spec["steps"]
    assert [rank["steps"] for rank in ranks] == [[last - 1, last]] * len(ranks) and not refusals(ranks[0])
    setting = setting_of(plan, 256, "cpu")
    assert isinstance(setting, Setting)
    assert [rank["tensors"] for rank in ranks] == rank_bytes(setting)
    assert all(
        0 <= rank["allocated"] - planned < 2 << 20 for rank, planned in zip(ranks, rank_bytes(setting), strict=True)
    )


@pytest.mark.full
def test_a_pod_with_too_little_memory_is_not_killed(tmp_path: Path, make_spec: Any) -> None:
    """A real cgroup: training fits, and snapshots do not. Without the decision the kernel kills the ranks."""
    model = {**LLAMA, "layers": 2, "dim": 1024, "heads": 8, "kv_heads": 8, "hidden": 4096}
    spec = make_spec({"data": 2, "zero": 0}, snapshot={"every": 1}, steps=3) | {"model": model, "precision": "fp32"}
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    with memory_cgroup(2 * sum(rank_bytes(setting)) + (64 << 20)) as folder:  # training needs more than half
        ranks = spawn(train_beside, 2, orders(spec, tmp_path), str(folder))
    assert [rank["steps"] for rank in ranks] == [[], []]
    (why,) = refusals(ranks[0])
    assert folder.name in why
    assert sum(kind == "step" for kind, _ in ranks[0]["events"]) == 3
