"""A disk's fault is reported and costs one checkpoint; the last one is tried again, and its failure is the job's."""

import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from harness.ranks import callback_of, group, train

Make = Callable[..., Any]

FULL_AT = 2000  # bytes


def with_a_full_disk(rank: int, world: int, port: int, orders: str) -> Any:
    """Rank 1 cannot write more than a few bytes until the first save has ended."""
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.callbacks.checkpointing import Checkpointing
    from shardyard.workers.trainer.instruments import Instruments

    built = built_for(rank, world, port, orders)  # which writes the token cache
    events: list[Any] = []

    def emit(kind: str, data: dict[str, Any]) -> None:
        events.append((kind, data))
        if kind == "step" and data["step"] == 3:
            callback_of(loop, Checkpointing).wait()
            limit(resource.RLIM_INFINITY)

    loop = assemble(built, emit, Instruments())
    if rank == 1:
        limit(FULL_AT)
    loop.run()
    return {"events": events, "shards": owned(built)}


def built_for(rank: int, world: int, port: int, orders: str) -> Any:
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.build import build

    run = Run.model_validate_json(orders)
    return build(run, make_mesh(run.train.layout, group(rank, world, port, run.device)))


def owned(built: Any) -> list[Any]:
    shards = [shard for shard in built.parallel.data.shards if shard.owned(built.mesh)]
    return [(shard.name, shard.shape, shard.offset, shard.tensor.numpy().copy()) for shard in shards]


def limit(size: int) -> None:
    """Longer files cannot be written by this process: the kernel refuses with EFBIG (Python ignores SIGXFSZ)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_full_disk_costs_one_checkpoint_and_no_step(root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2, "zero": 1}, checkpoint={"every": 2, "keep": 9, "final": False})
    whole = train({**spec, "checkpoint": {"final": False}}, root, "never-full")
    run = train(spec, root, "full", work=with_a_full_disk)
    (incident,) = [data for kind, data in run["events"] if kind == "incident"]
    assert (incident["cause"], incident["step"]) == ("checkpoint_failed", 2)
    assert os.strerror(27) in incident["message"] and "rank 1" in incident["message"]
    assert [path.name for path in (root / "checkpoints" / "full").iterdir()] == ["step-00000004"]
    (reported,) = [data for kind, data in run["events"] if kind == "checkpoint"]
    assert reported["step"] == 4 and 0 <= reported["held_s"] <= reported["seconds"]
    assert run["losses"] == whole["losses"]
    resumed = train(spec, root, "after-full", resume=Path(reported["path"]))
    assert resumed["losses"] == whole["losses"][4:]
    assert all(np.array_equal(value, resumed["parameters"][key]) for key, value in whole["parameters"].items())


def test_a_last_checkpoint_that_cannot_be_saved_fails_the_job(root: Path, make_spec: Make) -> None:
    (root / "checkpoints").mkdir(exist_ok=True)
    (root / "checkpoints" / "dead-path").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"the final checkpoint could not be saved in 3 tries: rank 0: .*make room"):
        train(make_spec({}, steps=1, checkpoint={}), root, "dead-path")


def repaired_after_the_last_step(rank: int, world: int, port: int, orders: str, saved: bool) -> Any:
    """The trainer dies when its last step is in a snapshot: a new one begins with that. `saved`: its checkpoint is complete, too."""
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    fds, events = shared_memory.allocate(), []
    built = built_for(rank, world, port, orders)
    assemble(built, lambda *_: None, Instruments(), SnapshotMemory(fds)).run()
    before = owned(built)
    if not saved:
        shutil.rmtree(built.run.checkpoints)
    for shard in built.parallel.data.shards:
        shard.tensor.zero_()
    steps = built.run.train.steps
    assemble(built, lambda kind, data: events.append((kind, data)), Instruments(), SnapshotMemory(fds, steps)).run()
    assert all(np.array_equal(old[3], new[3]) for old, new in zip(before, owned(built), strict=True))
    return {"events": events, "shards": before}


@pytest.mark.parametrize("saved", [False, True], ids=["not saved", "saved and not reported"])
def test_the_last_checkpoint_is_saved_though_a_repair_came_between(root: Path, make_spec: Make, saved: bool) -> None:
    spec = make_spec({}, steps=2, snapshot={"every": 1}, checkpoint={"every": 1})
    name = f"repaired-late-{saved}"
    run = train(spec, root, name, work=partial(repaired_after_the_last_step, saved=saved))
    found = [data["step"] for kind, data in run["events"] if kind == "checkpoint" and data.get("again")]
    assert found.count(2) == saved, "the supervisor drops what it knows"
    (reported,) = [data for kind, data in run["events"] if kind == "checkpoint" and not data.get("again")]
    assert reported["step"] == 2
    resumed = train({**spec, "steps": 3}, root, f"after-{name}", resume=Path(reported["path"]))
    assert len(resumed["losses"]) == 1


def repaired_within_a_save(rank: int, world: int, port: int, orders: str, saved: bool) -> Any:
    """The trainers die after step 3, before its checkpoint is complete; `saved`: right after. New ones go on with step 4."""
    from shardyard.workers.messages.stop_request import StopRequest
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    fds, events, steps = shared_memory.allocate(), [], [0]

    def stop_request() -> StopRequest:
        steps[0] += 1
        return StopRequest.STOP if steps[0] == 3 else StopRequest.NO

    built = built_for(rank, world, port, orders)
    assemble(built, lambda *_: None, Instruments(stop_request), SnapshotMemory(fds)).run()
    if rank == 0 and not saved:
        shutil.rmtree(built.run.checkpoints)
    dist.barrier()
    assemble(built, lambda kind, data: events.append((kind, data)), Instruments(), SnapshotMemory(fds, 3)).run()
    return {"events": events, "shards": owned(built)}


@pytest.mark.parametrize(("saved", "steps"), [(False, [4, 6, 9]), (True, [6, 9])], ids=["cut off", "complete"])
def test_a_checkpoint_that_a_repair_has_cut_off_is_saved_after_the_next_step(
    root: Path, make_spec: Make, saved: bool, steps: list[int]
) -> None:
    spec = make_spec({"data": 2}, steps=10, snapshot={"every": 1}, checkpoint={"every": 3, "final": False})
    run = train(spec, root, f"cut-off-{saved}", work=partial(repaired_within_a_save, saved=saved))
    reported = [data["step"] for kind, data in run["events"] if kind == "checkpoint" and not data.get("again")]
    assert reported == steps


def restarted_after_the_last_checkpoint(rank: int, world: int, port: int, orders: str, attempt: int) -> Any:
    """The trainer is lost after its last checkpoint and before its summary; another one starts from that checkpoint."""
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    events: list[Any] = []
    built = built_for(rank, world, port, orders)
    assemble(built, lambda kind, data: events.append((kind, data)), Instruments()).run()
    before = owned(built)
    for shard in built.parallel.data.shards:
        shard.tensor.zero_()
    restarted = replace(built, run=built.run.model_copy(update={"attempt": attempt}))
    assemble(
        restarted, lambda kind, data: events.append((kind, data)), Instruments(), SnapshotMemory(again=attempt == 1)
    ).run()
    assert all(np.array_equal(old[3], new[3]) for old, new in zip(before, owned(built), strict=True))
    return {"events": events, "shards": before}


@pytest.mark.parametrize("attempt", [1, 2], ids=["repaired", "restarted"])
def test_a_job_that_has_done_its_last_step_needs_no_other(root: Path, make_spec: Make, attempt: int) -> None:
    spec = make_spec({}, steps=2, checkpoint={"every": 1})
    work = partial(restarted_after_the_last_checkpoint, attempt=attempt)
    run = train(spec, root, f"done-in-{attempt}", work=work)
    first, second = [data for kind, data in run["events"] if kind == "summary"]
    assert first == second and first["checkpoint"].endswith("step-00000002")
    reports = [data for kind, data in run["events"] if kind == "checkpoint" and data["step"] == 2]
    assert [report.get("again", False) for report in reports] == [False, True, False], "the first may have been lost"
    for name in ("digest", "bytes", "path"):
        assert reports[1][name] == reports[0][name]
    assert len([data for kind, data in run["events"] if kind == "step" and not data.get("again")]) == 2
