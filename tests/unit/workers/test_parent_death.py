"""A process ends with the one that started it, also if that one is killed, or has died before."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers import parent_death

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


def test_a_process_knows_whether_it_has_children_in_a_group_besides_the_leader() -> None:
    leader = subprocess.Popen(["sleep", "600"], process_group=0)
    other = subprocess.Popen(["sleep", "600"], process_group=leader.pid)
    try:
        assert parent_death.has_children_in(leader.pid)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert not parent_death.has_children_in(leader.pid)
        assert leader.poll() is None
    finally:
        for process in (leader, other):
            process.kill()
            process.wait()


#: Its child has a child in another session, which is adopted when its parent is killed; another child is spared.
ADOPTER = """
import subprocess, sys
from shardyard.workers.parent_death import adopt_orphans, children, kill_orphans
adopt_orphans()
spared = subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo started; wait"], stdout=subprocess.PIPE).stdout.readline()
kill_orphans({spared.pid}, 60)
print(children() == [spared.pid])
spared.kill()
"""


def test_orphans_of_orphans_are_killed_and_others_spared() -> None:
    done = subprocess.run([sys.executable, "-c", ADOPTER], timeout=PATIENCE_S, check=True, capture_output=True)
    assert done.stdout == b"True\n"


def test_an_orphan_that_cannot_be_killed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another user. This process may be root, which no process refuses."""

    def refused(*_: int) -> None:
        raise PermissionError

    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            with monkeypatch.context() as patch:
                patch.setattr(parent_death, "children", lambda: [other.pid])
                patch.setattr(os, "kill", refused)
                parent_death.kill_orphans((), PATIENCE_S)
        finally:
            other.kill()


def test_an_orphan_that_does_not_end_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for a file system that does not answer: SIGKILL ends it when that does. Others must not wait for it."""

    def without_effect(*_: int) -> None:
        pass

    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            with monkeypatch.context() as patch:
                patch.setattr(parent_death, "children", lambda: [other.pid])
                patch.setattr(os, "kill", without_effect)
                parent_death.kill_orphans((), 0.05)
            assert other.poll() is None
        finally:
            other.kill()
