"""The control plane may die at any moment; the job goes on, and each step is stored exactly once."""

import json
import time
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane, endless, trained, until
from harness.patience import PATIENCE_S
from harness.slow_model import write_slow_model


def test_killed_and_started_again_the_job_goes_on_without_a_pause(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        job = client.submit(endless("survivor", model=write_slow_model(tmp_path)))
        trained(client, job.id, 10)
    plane.kill()
    killed = time.time()
    time.sleep(2)  # some steps are trained meanwhile, and no dispatcher stores them
    started = time.time()
    plane.up()
    with plane.client() as client:
        trained(client, job.id, 10)
        client.cancel(job.id)
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt) == ("cancelled", 1), done.message
        points = client.metrics(job.id, max_points=10_000).points
    assert [point.step for point in points] == list(range(1, len(points) + 1))
    assert any(killed < (point.ts or 0) < started for point in points), "it trained while there was no control plane"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_run_trains_the_quickstart_below_the_unigram_model_and_leaves_nothing(fresh_plane: ControlPlane) -> None:
    done = fresh_plane.run("run", "examples/quickstart.yaml", "--json", timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["validation_loss"] < 2.6
    assert summary["validation_loss"] < summary["unigram_loss"]
    assert summary["last_loss"] < summary["first_loss"]
    until(lambda: not fresh_plane.processes(), PATIENCE_S, "all processes to end")
