"""The commands of the pages for newcomers work as they stand there."""

import os
import re
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane
from harness.documents import run_script, shell, write_files
from harness.patience import PATIENCE_S

SCRIPT = "bring-your-script.md"


@pytest.mark.full
def test_the_tutorial_works_as_written(plane: ControlPlane, tmp_path: Path) -> None:
    done = run_script(shell("tutorial.md"), tmp_path, plane.env, 500)
    losses = dict(re.findall(r"^(\w+) +(\d\.\d{4})$", done.stdout, re.MULTILINE))
    assert list(losses) == ["one", "replicas", "zero", "tensor", "pipeline", "cube"]
    assert "[1, 2]" in done.stderr  # the degrees that would work


@pytest.mark.full
def test_the_page_for_a_script_of_your_own_runs_it_on_this_machine(tmp_path: Path) -> None:
    """Up to the first command that needs a control plane."""
    write_files(SCRIPT, tmp_path)
    done = run_script(shell(SCRIPT, end="## Submit it"), tmp_path, os.environ, 2 * PATIENCE_S)
    for rank in range(2):
        assert f"[rank {rank}] rank {rank} begins after step 0\n" in done.stdout, done.stdout
        assert f"[rank {rank}] step 100: loss " in done.stdout, done.stdout


@pytest.mark.full
def test_the_page_for_a_script_of_your_own_works_as_written(plane: ControlPlane, tmp_path: Path) -> None:
    write_files(SCRIPT, tmp_path)
    done = run_script(f"{shell(SCRIPT)}\nshardyard run --local job.yaml", tmp_path, plane.env, 500)
    assert "[rank 1] rank 1 begins after step 100\n" in done.stdout, done.stdout  # the second run on this machine
    assert "exit code 100\n" in done.stdout
    assert "ValueError: invalid literal for int() with base 10: 'many'" in done.stdout
    with plane.client() as client:
        job = client.job("longer")
        assert (job.state, job.parent) == ("succeeded", client.job("mine").id), job.message
        assert "rank 0 begins after step 100" in [line.text for line in client.logs(job.id).lines]
        assert [one.step for one in client.checkpoints(job.id).items if one.state == "present"] == [150]
        assert client.logged_curves(job.id, "loss").series["loss"].starts[-1] == 150
