"""What a process and all below it use, compared with what the kernel charges a real child at its end."""

import os
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from shardyard.workers.rank import process_tree

#: A process whose child works for a while and stays, and whose grandchild has worked and ended.
FAMILY = """
import os, subprocess, sys, time
def work(seconds):
    while time.process_time() < seconds: pass
if sys.argv[1] == "child":
    work(0.3)
    print("busy", flush=True)
    sys.stdin.read()
    os._exit(0)
ended = subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.2: pass"])
child = subprocess.Popen([sys.executable, "-c", os.environ["FAMILY"], "child"], stdin=0)
child.wait()
"""


def test_a_busy_family_shows_the_time_that_the_kernel_charges_for_it() -> None:
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-c", FAMILY, "parent"]
    env = {**os.environ, "FAMILY": FAMILY}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == "busy\n"
        found = process_tree.read(parent.pid)
        parent.stdin.close()
    after = getrusage(RUSAGE_CHILDREN)
    charged = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert charged >= 0.5
    # what ends the three processes is charged, too; and each of their times is rounded to ticks
    assert found.counters["cpu"] / 100 == pytest.approx(charged, abs=0.2)
    assert found.counters["cpu"] / 100 > 0.45, "the child's, and that of the grandchild that has ended"


def test_memory_is_what_is_resident() -> None:
    code = "import sys; held = bytearray(64 << 20); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 64 << 20 < process_tree.read(process.pid).values["memory"] < 128 << 20
        assert process.stdin is not None
        process.stdin.close()


def test_of_a_process_that_has_ended_there_is_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert process_tree.read(process.pid).values == {}
