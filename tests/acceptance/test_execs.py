"""Commands beside real ranks, seen from outside: their output and status, and their end with the job."""

from pathlib import Path

import pytest
from harness.control_plane import ControlPlane, endless, trained, until
from harness.patience import PATIENCE_S


@pytest.mark.full
def test_commands_run_beside_ranks_and_end_with_the_job(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        spec = {"name": "waits", "command": "sleep 1000", "ranks": 2, "cwd": str(tmp_path)}
        job = client.submit({**spec, "resources": {"device": "cpu", "env": {"GREETING": "hi"}}}).id
        until(lambda: client.job(job).state == "running", PATIENCE_S, "the program to run")
        shown = plane.run("exec", job, "--rank", "1", "--", "sh", "-c", 'echo "$RANK $GREETING"; pwd; exit 3')
        assert (shown.returncode, shown.stdout) == (3, f"1 hi\n{tmp_path}\n"), shown.stderr
        client.execute(job, ["sh", "-c", "echo $$ > pid; exec sleep 1000"], rank=0, seconds=3600)
        until((tmp_path / "pid").exists, PATIENCE_S, "the command to run")
        until(lambda: bool((tmp_path / "pid").read_text()), PATIENCE_S, "its process id")
        client.cancel(job)
        assert client.wait(job, timeout_s=PATIENCE_S).state == "cancelled"
        pid = int((tmp_path / "pid").read_text())
        until(lambda: not Path(f"/proc/{pid}").exists(), PATIENCE_S, "the command to end")
        newest, oldest = client.execs(job).items
        assert (oldest.status, newest.status) == (3, None) and newest.settled_at is not None


@pytest.mark.full
def test_a_command_beside_a_training_prints_before_it_ends(plane: ControlPlane) -> None:
    with plane.client() as client:
        training = client.submit(endless("beside", layout={"data": 1})).id
        trained(client, training, 1)
        shown = plane.run("exec", training, "--", "sh", "-c", "echo $OMP_NUM_THREADS; exit 4")
        assert (shown.returncode, shown.stdout) == (4, "1\n"), shown.stderr
        client.cancel(training)
        assert client.wait(training, timeout_s=PATIENCE_S).state == "cancelled"
