"""The control plane may die at any moment; the job goes on, and each step is stored exactly once."""

import itertools
import json
import time

import pytest
from harness.plane import Plane, spec, until

#: Some seconds of work more than the control plane is away.
STEPS = 250


def test_killed_and_started_again_the_job_goes_on_without_a_pause(fresh_plane: Plane) -> None:
    fresh_plane.up()
    with fresh_plane.client() as client:
        job = client.submit(spec("survivor", steps=STEPS, layout={"data": 2, "tensor": 2}, checkpoint={"final": False}))
        until(lambda: len(client.metrics(job.id).points) >= 20, 120, "the first steps")
    fresh_plane.kill()
    killed = time.monotonic()
    time.sleep(4)
    fresh_plane.up()
    away_s = time.monotonic() - killed
    with fresh_plane.client() as client:
        done = client.wait(job.id, timeout_s=240)
        assert done.state == "succeeded", done.message
        assert done.attempt == 1
        points = client.metrics(job.id, max_points=1000).points
    assert [point.step for point in points] == list(range(1, STEPS + 1))
    # No pause: steps went on in the time without a control plane.
    gaps = [after.ts - before.ts for before, after in itertools.pairwise(points)]
    assert max(gaps) < away_s


@pytest.mark.timeout(1200)
def test_run_trains_the_quickstart_below_the_byte_frequency_model_and_leaves_nothing(fresh_plane: Plane) -> None:
    done = fresh_plane.run("run", "examples/quickstart.yaml", "--json", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["validation_loss"] < 2.6
    assert summary["validation_loss"] < summary["unigram_loss"]
    assert summary["last_loss"] < summary["first_loss"]
    until(lambda: not fresh_plane.processes(), 60, "all processes to end")
