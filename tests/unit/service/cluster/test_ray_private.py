"""Checks of Ray's private functions, in a process of their own: Ray keeps what its environment says at its first use.

A test of the same process that starts a Ray head later would not get its token.
"""

import subprocess
import sys
from pathlib import Path

from harness.patience import PATIENCE_S


def test_they_are_refused_where_untried_there_where_tried_and_without_public_names() -> None:
    checks = Path(__file__).with_name("ray_private_checks.py")
    command = [sys.executable, "-m", "pytest", str(checks), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
