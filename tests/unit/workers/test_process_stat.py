"""What /proc says of real processes, beside what the standard library and psutil say; also of one with a misleading name."""

import os
import signal
import subprocess
import time

import psutil
import pytest
from harness.patience import PATIENCE_S
from harness.processes import started

from shardyard.workers.process_stat import TICKS, read, read_all, started_at, state_of

#: A process with a name that would be taken for more fields, and is no UTF-8.
MISNAMED = (
    "import ctypes, time; ctypes.CDLL(None).prctl(15, b') T 1 (\\xff', 0, 0, 0); print(flush=True); time.sleep(1000)"
)
#: One whose child has computed for a while, and has ended.
PARENT = """
import subprocess, sys, time
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass"])
print(flush=True)
time.sleep(1000)
"""


def test_a_process_runs_is_stopped_ends_and_is_gone() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert state_of(os.getpid()) == "R"
        process.send_signal(signal.SIGSTOP)
        until_state(process.pid, "T")
        assert started_at(process.pid) is not None
        process.kill()
        until_state(process.pid, "Z")
        assert started_at(process.pid) is None
    finally:
        process.kill()
        process.wait()
    assert state_of(process.pid) is None and started_at(process.pid) is None
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        read(process.pid)


def until_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while state_of(pid) != state:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_fields_are_those_that_others_read() -> None:
    with started(MISNAMED) as pid:
        found, known = read(pid), psutil.Process(pid)
        assert found.name == ") T 1 (\ufffd"
        assert (found.parent, found.session) == (os.getpid(), os.getsid(pid)) == (known.ppid(), pid)
        times = known.cpu_times()
        assert found.cpu / TICKS <= times.user + times.system + 1e-6
        assert found.started / TICKS == pytest.approx(known.create_time() - psutil.boot_time(), abs=1.5)
        assert started_at(pid) == found.started
        assert found.resident == pytest.approx(known.memory_info().rss, rel=0.2)
        assert read_all()[pid].name == found.name
    assert pid not in read_all()


def test_the_time_of_children_that_have_ended_is_their_parents() -> None:
    with started(PARENT) as pid:
        assert read(pid).children_cpu >= 0.3 * TICKS - 2  # user and system time are rounded down
