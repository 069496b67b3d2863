"""A local run whose own process is killed leaves no rank."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.patience import PATIENCE_S

from shardyard.workers.program import local_guard

#: Starts the guard and, in its group, a shell with a child. All have the standard output of this process.
STARTS = """
import subprocess, sys
guard = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1]], stdin=subprocess.PIPE, process_group=0)
rank = subprocess.Popen(["sh", "-c", "sleep 1000 & echo ready; wait"], process_group=guard.pid)
rank.wait()
"""


def test_the_group_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    assert local_guard.__file__ is not None
    command = [sys.executable, "-c", STARTS, local_guard.__file__]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path)
    assert started.stdout is not None
    try:
        assert started.stdout.readline() == b"ready\n"
        os.kill(started.pid, signal.SIGKILL)
        rest, _ = started.communicate(timeout=PATIENCE_S)  # returns when every process has closed the pipe
        assert rest == b""
    finally:
        started.kill()
        started.wait()
