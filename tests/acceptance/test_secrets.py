"""A job with secrets: its ranks have them, also after a repair by a new supervisor, and no log, record or file has their values."""

import contextlib
import os
import sys
from pathlib import Path

import psutil
from harness.control_plane import ControlPlane, until
from harness.control_plane import spec as training
from harness.patience import PATIENCE_S
from harness.processes import actors
from harness.ray_state import ray_state

SCRIPT = """
import os, pathlib, time
here, rank = pathlib.Path(__file__).parent, os.environ["RANK"]
key = pathlib.Path(os.environ["KEY_FILE"]).read_text()
print("the token is", os.environ["HF_TOKEN"], "and the key", key, flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    (here / f"{rank}.pid").write_text(str(os.getpid()))
    time.sleep(600)
assert os.environ["HF_TOKEN"] == (here / "wanted").read_text() and key.startswith("short")
raise RuntimeError(f"the server refused {os.environ['HF_TOKEN']}")
"""


def test_ranks_have_secrets_and_nothing_else_has(plane: ControlPlane, tmp_path: Path) -> None:
    token, lines = f"hf_{os.urandom(12).hex()}", ["short", os.urandom(12).hex()]
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "wanted").write_text(token)
    spec = {
        "name": "secrets",
        "command": [sys.executable, str(tmp_path / "train.py")],
        "ranks": 2,
        "secrets": ["HF_TOKEN", {"name": "KEY", "variable": "KEY_FILE", "file": True}],
    }
    with plane.client() as client:
        client.set_secret("HF_TOKEN", token)
        client.set_secret("KEY", "\n".join(lines))
        job = client.submit(spec)
        until(lambda: all((tmp_path / f"{rank}.pid").exists() for rank in range(2)), PATIENCE_S, "both ranks to start")
        until(lambda: client.job(job.id).state == "running", PATIENCE_S, "the job to run")
        # That of an ended job is removed after the job's end was reported.
        until(lambda: len(actors(plane, "Supervisor")) == 1, PATIENCE_S, "one supervisor alone")
        state = ray_state(plane)
        assert job.id.encode() in state and b"Rank" in state, "the running job's actors"
        assert token.encode() not in state and lines[1].encode() not in state
        (supervisor,) = actors(plane, "Supervisor")
        supervisor.kill()
        until(lambda: bool(client.incidents(job.id).items), PATIENCE_S, "a new supervisor")
        psutil.Process(int((tmp_path / "1.pid").read_text())).kill()
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.reason) == ("failed", "exception"), done.message
        assert "the server refused ***" in (done.message or "")
        incidents = client.incidents(job.id).items
        assert [one.cause for one in incidents] == ["supervisor_lost", "rank_lost", "exception"], incidents
        printed = [line.text for line in client.logs(job.id).lines]
        trained = client.submit({**training("trained", steps=3), "secrets": ["HF_TOKEN"]})
        assert client.wait(trained.id, timeout_s=PATIENCE_S).state == "succeeded"
        # Both ranks of the first generation, and of the second at least the one that fails first.
        assert len([line for line in printed if line.startswith("the token is *** and the key ")]) >= 3, printed
    searched = 0
    # What the ended jobs leave behind is removed meanwhile, whole folders too.
    for folder, _, names in os.walk(plane.data):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    content = path.read_bytes()
                    searched += 1
                    assert token.encode() not in content and lines[1].encode() not in content, path
    assert searched > 10
