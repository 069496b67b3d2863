"""Runs `ray_train_cases.py` in a process of its own: importing Ray Train decides how a process authenticates to any Ray cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

CASES = Path(__file__).with_name("ray_train_cases.py")


@pytest.mark.full
def test_what_ray_train_reports_becomes_metrics() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
