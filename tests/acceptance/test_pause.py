"""A running job is paused, and resumed where it stopped."""

import sys
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, endless, trained, until
from harness.patience import PATIENCE_S

from shardyard.api.client import Client

SAME: dict[str, Any] = {"layout": {"data": 2, "zero": 1}, "precision": "fp64"}


def paused(client: Client, job: str) -> None:
    until(lambda: client.job(job).state == "paused", PATIENCE_S, f"{job} to be paused")


@pytest.mark.full
def test_a_paused_training_continues_with_its_next_step(plane: ControlPlane) -> None:
    with plane.client() as client:
        job = client.submit(endless("paused", **SAME))
        trained(client, job.id, 3)
        asked = plane.run("pause", job.id)
        assert asked.returncode == 0 and "shardyard resume" in asked.stderr, asked.stderr
        paused(client, job.id)

        def is_free() -> bool:
            return all(share.job != job.id for node in client.nodes() for share in node.held)

        until(is_free, PATIENCE_S, "its devices to be free")
        assert plane.run("resume", job.id).returncode == 0
        trained(client, job.id, 3, attempt=2)
        client.cancel(job.id)
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt, done.restarts) == ("cancelled", 2, 0), done.message
        points = client.metrics(job.id, max_points=10_000).points
        assert [point.step for point in points] == list(range(1, len(points) + 1))
        (saved,) = [event.data["step"] for event in client.events(job.id) if event.kind == "checkpoint"]
        assert saved == max(point.step for point in points if point.attempt == 1)
        whole = client.submit(endless("whole", steps=len(points), **SAME))
        assert client.wait(whole.id, timeout_s=PATIENCE_S).state == "succeeded"
        curve = [point.loss for point in client.metrics(whole.id, max_points=10_000).points]
        assert [point.loss for point in points] == pytest.approx(curve, rel=1e-9)


@pytest.mark.full
def test_a_paused_program_saves_and_continues_from_there(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("""
import os, pathlib, shardyard, signal, sys, time
here = pathlib.Path(__file__).parent
saved = shardyard.resume()
def save(*_):
    (here / "weights").write_text("of step 7")
    shardyard.checkpoint(here / "weights", step=7)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(here / "started").touch()
if os.environ["SHARDYARD_ATTEMPT"] == "1":
    time.sleep(600)
print("continues", saved.step, (saved.path / "weights").read_text(), flush=True)
""")
    with plane.client() as client:
        job = client.submit({"name": "program", "command": [sys.executable, str(tmp_path / "train.py")]})
        until((tmp_path / "started").exists, PATIENCE_S, "the program to start")
        client.pause(job.id)
        paused(client, job.id)
        assert client.job(job.id).use is None
        assert client.system(job.id, "node/memory_used").curves, "a paused job keeps its series"
        client.resume(job.id)
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt) == ("succeeded", 2), done.message
        assert [line.text for line in client.logs(job.id).lines] == ["continues 7 of step 7"]
        (checkpoint,) = client.checkpoints(job.id).items
        assert (checkpoint.step, checkpoint.state) == (7, "present")
        (taken,) = client.download_checkpoint(job.id, 7, tmp_path / "taken")
        assert taken.read_text() == "of step 7"
        version = client.create_version("program", job.id, step=7)
        assert (version.number, version.trained, version.state) == (1, False, "present")
