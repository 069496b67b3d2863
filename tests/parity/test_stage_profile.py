"""A gang that continues from snapshots keeps its split; one that continues from a checkpoint measures again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import LLAMA
from harness.ranks import group, spawn, train, train_rank

from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer import stage_profile
from shardyard.workers.trainer.segment_writer import SnapshotError

LAYOUT: dict[str, Any] = {"pipeline": {"stages": 2, "split": "profile"}}
MODEL = {**LLAMA, "layers": 4}
#: Nanoseconds, far above every time of these models.
COSTLY = 10**12
BREAK = 2


def repaired(rank: int, world: int, port: int, orders: str) -> dict[str, Any]:
    """Train to `BREAK` with a costly head, then continue from the snapshots where the embedding would be costly."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.heartbeat import Heartbeat
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    run, device, fds = Run.model_validate_json(orders), group(rank, world, port), shared_memory.allocate()
    losses: dict[int, float] = {}
    splits: list[Any] = []

    def note(kind: str, data: dict[str, Any]) -> None:
        if kind == "plan":
            splits.append((data["stage_blocks"], data["choices"]))
        if kind == "step" and "loss" in data:
            losses[data["step"]] = data["loss"]

    true, costly = stage_profile.measured, ({"head": COSTLY}, {"embed": COSTLY})
    for skewed, restored, last in zip(costly, (None, BREAK), (BREAK, run.train.steps), strict=True):
        stage_profile.measured = lambda *given, skewed=skewed: replace(true(*given), **skewed)
        heartbeat = Heartbeat()
        asked = lambda last=last, at=heartbeat: StopRequest.STOP if at.step == last else StopRequest.NO  # noqa: E731
        kept = stage_profile.kept(run.train, fds, restored)
        built = allocate(run, make_mesh(run.train.layout, device), kept)
        assemble(built, note, Instruments(asked, heartbeat), SnapshotMemory(fds, restored)).run()
    return {"losses": losses, "splits": splits}


def test_a_gang_that_restores_snapshots_keeps_their_split(tmp_path: Path, make_spec: Any) -> None:
    spec = make_spec(LAYOUT, model=MODEL, steps=4, checkpoint={"final": False})
    snapshots = TrainSpec.model_validate({**spec, "snapshot": {"every": 1}})
    run = Run(job="a", train=snapshots, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    found = spawn(repaired, 2, run.model_dump_json())[0]
    before, after, *_ = found["splits"]  # and the first one again, among the events that are replayed
    assert before == after and [stop - start for start, stop in before[0]] == [4, 0]
    whole = train({**spec, "layout": {}}, tmp_path, "whole")
    np.testing.assert_allclose([found["losses"][step] for step in range(1, 5)], whole["losses"], rtol=1e-10)


def costly_embedding(rank: int, world: int, port: int, orders: str) -> dict[str, Any]:
    """`train_rank`, where every profile has a costly embedding."""
    true = stage_profile.measured
    stage_profile.measured = lambda *given: replace(true(*given), embed=COSTLY)
    return train_rank(rank, world, port, orders)


def test_a_checkpoint_continues_on_another_split(tmp_path: Path, make_spec: Any) -> None:
    saving = {"every": 2, "final": False}
    before = train(make_spec({"pipeline": 2}, model=MODEL, steps=4, checkpoint=saving), tmp_path, "before")
    resume = tmp_path / "checkpoints" / "before" / "step-00000002"
    spec = make_spec(LAYOUT, model=MODEL, steps=4)
    after = train(spec, tmp_path, "after", resume=resume, work=costly_embedding)
    (plan,) = [data for kind, data in after["events"] if kind == "plan"]
    assert [stop - start for start, stop in plan["stage_blocks"]] == [0, 4]
    np.testing.assert_allclose(after["losses"], before["losses"][2:], rtol=1e-10)
    for name, value in before["parameters"].items():
        np.testing.assert_allclose(after["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


def test_without_the_snapshot_to_restore_a_rank_does_not_measure() -> None:
    profiled, plain = (
        TrainSpec.model_validate({"steps": 1, "global_batch": 8, "layout": layout})
        for layout in (LAYOUT, {"pipeline": 2})
    )
    assert stage_profile.kept(profiled, (), None) is None and stage_profile.kept(plain, (), 3) is None
    with pytest.raises(SnapshotError, match="no snapshot of step 3"):
        stage_profile.kept(profiled, (), 3)
