"""A job whose trainer and supervisor are killed goes on, seen from outside: same attempt, every step once, the same losses, a history."""

from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, endless, trained, until
from harness.patience import PATIENCE_S
from harness.processes import actors, trainers
from harness.slow_model import write_slow_model


@pytest.mark.full
def test_a_job_that_loses_its_supervisor_and_a_trainer_goes_on_in_place(plane: ControlPlane, tmp_path: Path) -> None:
    same: dict[str, Any] = {
        "model": write_slow_model(tmp_path),
        "layout": {"data": 4, "zero": 1},
        "snapshot": {"every": 1},
    }
    with plane.client() as client:
        broken = client.submit(endless("broken", **same))
        trained(client, broken.id, 10)
        sampled = client.system(broken.id, "rank/memory").starts
        # What is left of an ended job is removed after its end was reported.
        until(lambda: len(trainers(plane)) == 4, PATIENCE_S, "four trainers alone")
        until(lambda: len(actors(plane, "Supervisor")) == 1, PATIENCE_S, "one supervisor alone")
        before, (supervisor,) = trainers(plane), actors(plane, "Supervisor")
        supervisor.kill()
        before[0].kill()
        until(lambda: len(client.incidents(broken.id).items) == 2, PATIENCE_S, "both incidents")
        until(lambda: client.incidents(broken.id).items[1].repair is not None, PATIENCE_S, "the repair")
        trained(client, broken.id, 10)
        until(lambda: client.system(broken.id, "rank/memory").starts[-1:] > sampled[-1:], PATIENCE_S, "new samples")
        client.cancel(broken.id)
        done = client.wait(broken.id, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt, done.restarts) == ("cancelled", 1, 0), done.message
        states = [event.data["state"] for event in client.events(broken.id) if event.kind == "state"]
        assert states == [
            "queued",
            "placing",
            "starting",
            "running",
            "recovering",
            "running",
            "cancelling",
            "cancelled",
        ]
        points = client.metrics(broken.id, max_points=10_000).points
        whole = client.submit(endless("whole", steps=len(points), **same))
        assert client.wait(whole.id, timeout_s=PATIENCE_S).state == "succeeded"
        curve = [(point.step, point.loss) for point in client.metrics(whole.id, max_points=10_000).points]
        assert [(point.step, point.loss) for point in points] == curve
        first, incident = client.incidents(broken.id).items
    assert (first.cause, first.repair) == ("supervisor_lost", None)
    assert incident.cause == "rank_lost" and incident.repair is not None and incident.repair.generation == 2
    # No step that was reported is lost.
    assert incident.repair.restored is not None and incident.repair.restored >= (incident.step or 0)
    printed = plane.run("incidents", "broken").stdout
    assert "The gang's supervisor was lost after step" in printed and "repaired in place as generation 2" in printed
