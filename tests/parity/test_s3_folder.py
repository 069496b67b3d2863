"""A run that saves in a bucket: the server dies in the middle of it and comes back, and another layout goes on from what was saved."""

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness.bucket import Buckets
from harness.control_plane import until
from harness.patience import PATIENCE_S
from harness.ranks import callback_of, group, train, train_rank


def with_a_server_that_dies(
    rank: int, world: int, port: int, orders: str, environment: dict[str, str], signs: Path
) -> Any:
    """The server is dead from step 3, when one save has ended, to step 5, when the next one has."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.callbacks.checkpointing import Checkpointing
    from shardyard.workers.trainer.instruments import Instruments

    os.environ.update(environment)
    run = Run.model_validate_json(orders)
    events: list[Any] = []

    def emit(kind: str, data: dict[str, Any]) -> None:
        events.append((kind, data))
        if rank == 0 and kind == "step" and data["step"] in (3, 5):
            callback_of(loop, Checkpointing).wait()
            (signs / f"waits-{data['step']}").touch()
            until((signs / f"goes-{data['step']}").exists, PATIENCE_S, "the test")

    loop = assemble(build(run, make_mesh(run.train.layout, group(rank, world, port))), emit, Instruments())
    loop.run()
    return {"events": events, "shards": []}


def in_a_bucket(rank: int, world: int, port: int, orders: str, environment: dict[str, str]) -> Any:
    os.environ.update(environment)
    return train_rank(rank, world, port, orders)


def kill_and_start(buckets: Buckets, signs: Path) -> None:
    until((signs / "waits-3").exists, PATIENCE_S, "step 3")
    buckets.kill()
    (signs / "goes-3").touch()
    until((signs / "waits-5").exists, PATIENCE_S, "step 5")
    buckets.start()
    (signs / "goes-5").touch()


def test_a_dead_server_costs_one_checkpoint_and_another_layout_goes_on(
    root: Path, tmp_path: Path, make_spec: Callable[..., Any], prefix: str, buckets: Buckets
) -> None:
    spec = make_spec({"data": 2, "zero": 1}, steps=7, checkpoint={"every": 2, "uri": prefix, "final": False})
    acting = threading.Thread(target=kill_and_start, args=(buckets, tmp_path))
    acting.start()
    try:
        work = partial(with_a_server_that_dies, environment=buckets.environment, signs=tmp_path)
        run = train(spec, root, "in-a-bucket", work=work)
    finally:
        for sign in ("waits-3", "waits-5"):
            (tmp_path / sign).touch()
        acting.join()
    (incident,) = [data for kind, data in run["events"] if kind == "incident"]
    assert (incident["cause"], incident["step"]) == ("checkpoint_failed", 4)
    mine = f"{prefix}/in-a-bucket"
    assert f"{mine}/step-00000004: rank" in incident["message"]
    saved = [data["path"] for kind, data in run["events"] if kind == "checkpoint"]
    assert saved == [f"{mine}/step-00000002", f"{mine}/step-00000006"]

    there = partial(in_a_bucket, environment=buckets.environment)
    again = make_spec({"tensor": 2}, steps=7, checkpoint={"final": False})
    resumed = train(again, root, "from-a-bucket", resume=mine, work=there)
    np.testing.assert_allclose(resumed["losses"], run["losses"][6:], rtol=1e-10)
