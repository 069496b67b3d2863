"""The state of a process by /proc: also of one whose name would be taken for more fields."""

import os
import signal
import subprocess
import time

from harness.patience import PATIENCE_S

from shardyard.workers.process_state import state_of


def test_a_process_runs_is_stopped_and_is_gone() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert state_of(os.getpid()) == "R"
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while state_of(process.pid) != "T":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert state_of(process.pid) is None
