"""The tutorial's commands work as they stand on its page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.full
def test_the_tutorial_works_as_written(plane: ControlPlane, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "set -euo pipefail\n" + "\n".join(blocks)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=plane.env | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = dict(re.findall(r"^(\w+) +(\d\.\d{4})$", done.stdout, re.MULTILINE))
    assert list(losses) == ["one", "replicas", "zero", "tensor", "pipeline", "cube"]
    assert "[1, 2]" in done.stderr  # the degrees that would work
