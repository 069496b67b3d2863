"""A job's life seen from outside: it trains, it is cancelled, it fails with its incident, and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from harness.control_plane import ControlPlane, spec, until
from harness.patience import PATIENCE_S
from harness.slow_model import write_slow_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def trainers(plane: ControlPlane) -> list[psutil.Process]:
    """Trainer and rank processes of the plane's cluster, by Ray's names for actors and ours for trainers."""
    names = ("shardyard-trainer", "ray::Rank", "ray::Supervisor", "ray::Gang")
    return [p for p in psutil.process_iter() if any(name in " ".join(_title(p)) for name in names) and _of(p, plane)]


def _title(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _of(process: psutil.Process, plane: ControlPlane) -> bool:
    try:
        return str(plane.data) in " ".join(process.environ().values())
    except psutil.Error:
        return False


def test_trains_to_the_end_and_reports_every_step_once(plane: ControlPlane) -> None:
    with plane.client() as client:
        document = spec("four-ranks", steps=12, layout={"data": 2, "tensor": 2, "zero": 1})
        job = client.submit({**document, "policy": {"preflight": True}})
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded", done.message
        points = client.metrics(job.id).points
        assert [point.step for point in points] == list(range(1, 13))
        assert points[-1].loss is not None and points[0].loss is not None and points[-1].loss < points[0].loss
        assert done.summary is not None
        assert Path(done.summary.checkpoint or "", "manifest.json").exists()
        kinds = [event.kind for event in client.events(job.id)]
        assert kinds.count("preflight") == 1 and kinds.index("preflight") < kinds.index("plan") < kinds.index("step")


@pytest.mark.full
def test_the_gang_and_torchrun_train_the_same_bits(plane: ControlPlane, tmp_path: Path) -> None:
    document = spec("same-bits", steps=6, layout={"data": 2, "zero": 2}, checkpoint={"final": False})
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
    ]
    command += ["-m", "shardyard.workers.local", str(file), "--json", "--out", str(tmp_path)]
    out = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    with plane.client() as client:
        job = client.wait(client.submit(document).id, timeout_s=PATIENCE_S)
        stored = client.metrics(job.id).points
    assert [point.loss for point in stored] == [e["data"]["loss"] for e in events if e["kind"] == "step"]


def test_cancel_ends_a_running_job_and_leaves_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        job = client.submit(spec("endless", steps=1_000_000, model=write_slow_model(tmp_path), layout={"data": 4}))
        until(lambda: client.job(job.id).state == "running", PATIENCE_S, "the job to run")
        assert trainers(plane)
        client.cancel(job.id)
        until(lambda: client.job(job.id).state == "cancelled", PATIENCE_S, "cancelled")
        until(lambda: not trainers(plane), PATIENCE_S, "trainers and actors to be gone")
        until(lambda: all(node.cpu_used == 0 for node in client.nodes()), PATIENCE_S, "devices to be free")


RAISES = """
import torch, torch.distributed
from torch import nn


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.calls = nn.Embedding(256, 256), 0

    def forward(self, tokens):
        self.calls += 1
        if self.calls > 3 and torch.distributed.get_rank() == 1:
            raise RuntimeError("the cheese is finished")
        return self.embed(tokens)


def make():
    return Raises()
"""


@pytest.mark.full
def test_a_rank_that_raises_fails_the_job_with_its_story(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "cheese.py").write_text(RAISES)
    document = spec("raises")
    document["train"]["model"] = {"import": "cheese:make", "code": str(tmp_path)}
    with plane.client() as client:
        job = client.wait(client.submit(document).id, timeout_s=PATIENCE_S)
        assert job.state == "failed"
        assert job.reason == "exception"
        for part in ("RuntimeError: the cheese is finished", "rank 1", "Traceback", "cheese.py"):
            assert part in (job.message or ""), job.message
        until(lambda: not trainers(plane), PATIENCE_S, "trainers and actors to be gone")
        assert client.wait(client.submit(spec("after-it", steps=2)).id, timeout_s=PATIENCE_S).state == "succeeded"


@pytest.mark.full
def test_a_job_saves_in_a_bucket_and_another_one_resumes_it(plane: ControlPlane) -> None:
    uri = "s3://checkpoints/jobs"
    with plane.client() as client:
        first = client.submit(spec("in-a-bucket", steps=4, checkpoint={"every": 2, "keep": 1, "uri": uri}))
        done = client.wait(first.id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert done.summary is not None and done.summary.checkpoint == f"{uri}/{first.id}/step-00000004"
        second = client.submit(spec("from-a-bucket", steps=6, layout={"tensor": 2}, resume_from="in-a-bucket"))
        assert client.wait(second.id, timeout_s=PATIENCE_S).state == "succeeded"
        assert [point.step for point in client.metrics(second.id).points] == [5, 6]
        assert client.incidents(first.id).items == client.incidents(second.id).items == []


@pytest.mark.full
def test_resumes_a_job_on_another_layout(plane: ControlPlane) -> None:
    with plane.client() as client:
        first = client.wait(client.submit(spec("part-one", steps=4)).id, timeout_s=PATIENCE_S)
        assert first.state == "succeeded", first.message
        second = client.submit(spec("part-two", steps=6, layout={"tensor": 2}, resume_from="part-one"))
        done = client.wait(second.id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert [point.step for point in client.metrics(second.id).points] == [5, 6]


@pytest.mark.full
def test_what_the_models_print_is_in_the_logs(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "from torch import nn\nimport torch.distributed\n\ndef make():\n"
        "    print('hello from rank', torch.distributed.get_rank())\n    return nn.Embedding(256, 256)\n"
    )
    document = spec("chatty", steps=1)
    document["train"]["model"] = {"import": "chatty:make", "code": str(tmp_path)}
    with plane.client() as client:
        job = client.wait(client.submit(document).id, timeout_s=PATIENCE_S)
        for rank in (0, 1):
            texts = [line.text for line in client.logs(job.id, rank=rank).lines]
            assert f"hello from rank {rank}" in texts


def test_a_job_larger_than_the_cluster_is_refused(plane: ControlPlane) -> None:
    with plane.client() as client, pytest.raises(Exception, match="ranks"):
        client.submit(spec("giant", layout={"data": 1024}, global_batch=1024))


@pytest.mark.full
def test_a_job_is_stopped_once_its_time_is_up(plane: ControlPlane) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
    with plane.client() as client:
        job = client.submit({"name": "short", "command": sleep, "policy": {"max_duration": "1s"}})
        done = client.wait(job.id, timeout_s=PATIENCE_S)
    assert (done.state, done.reason, done.attempt) == ("failed", "max_duration_exceeded", 1), done.message
    shown = plane.run("show", job.id)
    assert "of 1.0 s used" in shown.stdout and "stopped after its policy.max_duration of 1s" in shown.stderr.lower()
