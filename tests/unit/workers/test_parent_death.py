"""A process ends with the one that started it, also if that one is killed, or has died before."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.patience import PATIENCE_S

#: Starts a child, writes its pid, and waits. The child's end closes the pipe that only it and its parent hold.
PARENT = """
import os, subprocess, sys
child = '''
import time
from shardyard.workers.parent_death import die_with_parent
die_with_parent(%d)
print("ready", flush=True)
time.sleep(600)
'''
subprocess.run([sys.executable, "-c", child % os.getpid()])
"""


def test_a_killed_parent_takes_its_child_along(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == b"ready\n"
        os.kill(parent.pid, signal.SIGKILL)
        rest, _ = parent.communicate(timeout=PATIENCE_S)  # returns when the child, too, has closed the pipe
        assert rest == b""
    finally:
        parent.kill()
        parent.wait()


def test_a_child_whose_parent_has_died_before_exits_at_once() -> None:
    program = "from shardyard.workers.parent_death import die_with_parent; die_with_parent(1 << 22)"
    assert subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S, check=False).returncode == 1
