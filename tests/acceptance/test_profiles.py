"""Profiles of real ranks: of a program below a shell, and of a training, seen from outside."""

import gzip
import json
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane, endless, trained, until
from harness.patience import PATIENCE_S

SCRIPT = """
def busy_in_here():
    number = 0
    while True:
        number = (number + 1) % 1000
busy_in_here()
"""
#: A training that knows nothing of a profiler.
STEPS = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


def cancelled(plane: ControlPlane, job: str) -> None:
    with plane.client() as client:
        client.cancel(job)
        assert client.wait(job, timeout_s=PATIENCE_S).state == "cancelled"


@pytest.mark.full
def test_a_program_records_steps_of_its_optimizer(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    with plane.client() as client:
        command = ["python", f"{tmp_path}/steps.py"]
        spec = {"name": "steps", "command": command, "ranks": 2, "resources": {"device": "cpu"}}
        job = client.submit(spec).id
        until(lambda: client.job(job).state == "running", PATIENCE_S, "the program to run")

        def recorded() -> str | None:
            """The file of the newest recording. Before the program's first step there is none, and the answer says so."""
            asked = client.profile(job, rank=1, kind="operators", seconds=1)
            until(lambda: client.profiles(job).items[0].state != "open", PATIENCE_S, "the recording")
            [done] = [one for one in client.profiles(job).items if one.id == asked.id]
            assert done.file or "no process of this rank has made a step" in (done.message or ""), done.message
            return done.file

        until(lambda: recorded() is not None, PATIENCE_S, "a recording")
        [file] = client.artifacts(job).items
        trace = json.loads(gzip.decompress(client.download_artifact(job, file.name, tmp_path).read_bytes()))
        assert "Optimizer.step#SGD.step" in {event.get("name") for event in trace["traceEvents"]}
        assert client.job(job).state == "running"
        cancelled(plane, job)


@pytest.mark.full
def test_a_rank_of_a_program_and_one_of_a_training_are_profiled(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(SCRIPT)
    with plane.client() as client:
        spec = {
            "name": "busy",
            "command": f"python {tmp_path}/busy.py; true",
            "ranks": 2,
            "resources": {"device": "cpu"},
        }
        job = client.submit(spec).id
        until(lambda: client.job(job).state == "running", PATIENCE_S, "the program to run")
        printed = plane.run("profile", job, "--rank", "1")
        assert printed.returncode == 0 and "busy_in_here" in printed.stdout, printed.stderr
        asked = client.profile(job, rank=0, kind="cpu", seconds=1)
        until(lambda: client.profiles(job).items[0].state != "open", PATIENCE_S, "the profile")
        [done] = [one for one in client.profiles(job).items if one.id == asked.id]
        assert done.state == "done" and done.file is not None, done.message
        found = json.loads(client.download_artifact(job, done.file, tmp_path).read_text())
        assert "busy_in_here" in {frame["name"] for frame in found["shared"]["frames"]}
        cancelled(plane, job)
        training = client.submit(endless("profiled", layout={"data": 1})).id
        trained(client, training, 1)
        printed = plane.run("profile", training)
        assert printed.returncode == 0 and "train_step" in printed.stdout, (printed.stdout, printed.stderr)
        asked = client.profile(training, rank=0, kind="operators", seconds=1)
        until(lambda: client.profiles(training).items[0].state != "open", PATIENCE_S, "the recording")
        [done] = [one for one in client.profiles(training).items if one.id == asked.id]
        assert done.state == "done" and done.file is not None, done.message
        trace = json.loads(gzip.decompress(client.download_artifact(training, done.file, tmp_path).read_bytes()))
        assert "aten::mm" in {event.get("name") for event in trace["traceEvents"]}
        assert len(client.artifacts(training).items) == 2
        cancelled(plane, training)
