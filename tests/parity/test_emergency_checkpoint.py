"""What rank actors still hold becomes a checkpoint without a trainer, and another degree goes on from it on the same curve."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import BIASED
from harness.ranks import group, spawn, train

from shardyard.strategies.layout import Layout
from shardyard.workers.checkpoint.errors import CheckpointError
from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.rank.actor import Rank
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.supervisor.emergency_checkpoint import BrokenGang, save_and_emit, save_from_memory
from shardyard.workers.supervisor.event_merger import EventMerger
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member

Make = Callable[..., Any]

#: Training is broken off after this step.
LAST = 3
KINDS = ("step", "checkpoint")


def train_until_broken(rank: int, world: int, port: int, orders: str) -> list[bytes]:
    """Train up to `LAST` with a snapshot of each step; returns the content of this rank's segments."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    run, asked, fds = Run.model_validate_json(orders), 0, shared_memory.allocate()

    def stop_request() -> StopRequest:
        nonlocal asked
        asked += 1
        return StopRequest.STOP if asked >= LAST else StopRequest.NO

    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    assemble(built, lambda kind, data: None, Instruments(stop_request), SnapshotMemory(fds)).run()
    return [os.pread(fd, os.fstat(fd).st_size, 0) for fd in fds]


class Local:
    """A rank's own actor class, asked in this process as Ray asks it."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def __getattr__(self, method: str) -> Any:
        return type("Method", (), {"remote": staticmethod(getattr(self.rank, method))})


@pytest.fixture
def broken(root: Path, make_spec: Make) -> Iterator[Callable[..., tuple[list[Member], BrokenGang]]]:
    """`broken(layout, name, **changes)`: the actors of a gang whose trainers have died after step 3, of which step 2 was reported."""
    opened: list[int] = []

    def make(layout: dict[str, Any], name: str, **changes: Any) -> tuple[list[Member], BrokenGang]:
        spec = TrainSpec.model_validate(make_spec(layout, snapshot={"every": 1}, **changes))
        run = Run(job=name, train=spec, checkpoints=str(root / "checkpoints" / name), cache=root / "cache")
        world = Layout.model_validate(layout).world_size
        members = []
        for rank, contents in enumerate(spawn(train_until_broken, world, run.model_dump_json())):
            actor = Rank("cpu")
            actor.store.reserve(rank, 1, None)
            opened.extend(actor.store.own)
            for fd, content in zip(actor.store.own, contents, strict=True):
                os.write(fd, content)
            members.append(Member(rank, handle=RankHandle(Local(actor))))
        merger = EventMerger(Spool(1 << 20), world)
        merger.newest_step = LAST - 1
        return members, BrokenGang(run.model_dump(mode="json", by_alias=True), world, merger)

    yield make
    for fd in opened:
        os.close(fd)


def lose(members: list[Member], *ranks: int, copied_to: int | None = None) -> None:
    """These actors are gone; their snapshots too, unless another actor keeps copies of them."""
    for rank in ranks:
        if copied_to is not None:
            members[copied_to].placed.actor.rank.store.replicas.segments[rank] = members[
                rank
            ].placed.actor.rank.store.own
        members[rank].lost = True


@pytest.mark.parametrize(
    ("before", "lost", "copied_to", "after"),
    [
        pytest.param({"data": 4, "zero": 1}, (3,), 0, {"data": 2, "zero": 1}, id="a-copy-of-the-lost-share"),
        pytest.param({"data": 2, "tensor": 2}, (0, 1), 3, {"tensor": 2}, id="what-the-lost-replica-kept"),
    ],
)
async def test_a_smaller_job_goes_on_from_what_is_left(
    broken: Make, root: Path, make_spec: Make, one_process: Make, before: Any, lost: Any, copied_to: int, after: Any
) -> None:
    name = f"salvaged-{copied_to}"
    members, gang = broken(before, name)
    lose(members, *lost, copied_to=copied_to)
    assert await save_and_emit(members, gang) == f"the job continues after step {LAST}, which was in memory"
    emitted = [event for event in gang.merger.spool.take(0) if event["kind"] in KINDS]
    events = [(event["kind"], event["data"]["step"]) for event in emitted]
    assert events == [("step", LAST), ("checkpoint", LAST)], "what had died with rank 0 on its way is reported once"
    path = root / "checkpoints" / name / f"step-{LAST:08d}"
    assert emitted[-1]["data"]["digest"] == json.loads((path / "manifest.json").read_bytes())["sha256"]
    resumed = train(make_spec(after), root, f"after-{name}", resume=path)
    whole = one_process(make_spec({}))
    np.testing.assert_allclose(resumed["losses"], whole["losses"][LAST:], rtol=1e-10)
    for key, value in whole["parameters"].items():
        np.testing.assert_allclose(resumed["parameters"][key], value, rtol=0, atol=1e-10, err_msg=key)
    assert (
        await save_and_emit(members, gang)
        == f"step {LAST} is saved already: the job continues from its newest checkpoint"
    )


async def test_experts_biases_are_left_too(broken: Make, root: Path, make_spec: Make, one_process: Make) -> None:
    members, gang = broken({"data": 4, "expert": 2}, "salvaged-biases", model=BIASED)
    lose(members, 2, 3, copied_to=0)
    assert await save_and_emit(members, gang) == f"the job continues after step {LAST}, which was in memory"
    path = root / "checkpoints" / "salvaged-biases" / f"step-{LAST:08d}"
    resumed = train(make_spec({"data": 2}, model=BIASED), root, "after-biases", resume=path)
    whole = one_process(make_spec({}, model=BIASED))
    np.testing.assert_allclose(resumed["losses"], whole["losses"][LAST:], rtol=1e-10)
    for key, value in whole["parameters"].items():
        np.testing.assert_allclose(resumed["parameters"][key], value, rtol=0, atol=1e-10, err_msg=key)


@pytest.mark.parametrize(
    ("layout", "lost"),
    [
        pytest.param({"data": 2, "pipeline": 2}, (0, 1), id="the-first-stage-with-all-its-replicas"),
        pytest.param({"data": 2, "zero": 0}, (1,), id="one-replica-with-what-it-keeps-for-both"),
    ],
)
async def test_nothing_is_written_where_a_part_is_gone(broken: Make, root: Path, layout: Any, lost: Any) -> None:
    members, gang = broken(layout, f"incomplete-{len(lost)}")
    lose(members, *lost)
    with pytest.raises(CheckpointError, match="no step is whole"):
        await save_from_memory(members, gang)
    assert not (root / "checkpoints" / f"incomplete-{len(lost)}").exists()
