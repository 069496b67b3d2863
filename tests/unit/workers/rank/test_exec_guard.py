"""A command ends with the actor that started it, however the actor ends."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.rank import exec_guard, process_tree

#: An actor, and a command that starts a process in another session. All have the standard output of this process.
ACTOR = """
import os, signal, subprocess, sys
script = "setsid sleep 1000 & echo ready; exec sleep 1000"
child = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], "sh", "-c", script], stdin=subprocess.PIPE)
def leave(*_):  # as an actor of Ray exits
    child.kill()
    os._exit(1)
signal.signal(signal.SIGTERM, leave)
child.wait()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "exits"])
def test_an_actor_that_ends_takes_its_command_along(how: signal.Signals) -> None:
    assert exec_guard.__file__ is not None
    actor = subprocess.Popen([sys.executable, "-c", ACTOR, exec_guard.__file__], stdout=subprocess.PIPE)
    assert actor.stdout is not None
    try:
        assert actor.stdout.readline() == b"ready\n"
        os.kill(actor.pid, how)
        rest, _ = actor.communicate(timeout=PATIENCE_S)  # returns when every process has closed the pipe
        assert rest == b""
    finally:
        actor.kill()
        actor.wait()


def test_processes_that_left_the_command_and_ended_do_not_stay_until_its_end() -> None:
    assert exec_guard.__file__ is not None
    script = "for i in 1 2 3; do (true &); done; echo ready $PPID; exec sleep 1000"
    command = [sys.executable, "-I", "-S", exec_guard.__file__, "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdin is not None and outer.stdout is not None
        try:
            guard = int(outer.stdout.readline().split()[1])
            deadline = time.monotonic() + PATIENCE_S
            while len(left := process_tree.pids(guard)) > 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert len(left) == 2, "the guard and the command"
        finally:
            outer.stdin.close()  # which ends both


def test_a_process_that_cannot_be_killed_stays_and_the_others_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another user, which `sudo` started. This process may be root, which no process refuses."""
    kill = os.kill

    def refused(pid: int, number: int) -> None:
        if pid == first.pid:
            raise PermissionError
        kill(pid, number)

    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        try:
            with monkeypatch.context() as patch:
                patch.setattr(exec_guard, "children", lambda: [one.pid for one in (first, second) if alive(one.pid)])
                patch.setattr(os, "kill", refused)
                exec_guard.kill_children()
            assert alive(first.pid) and not alive(second.pid)
        finally:
            first.kill()
            second.kill()


def test_where_the_kernel_lists_no_children_there_is_none_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1 << 22)  # no thread has this id
        assert exec_guard.children() == []


def test_a_process_that_does_not_end_holds_up_no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `nvidia-smi` on a GPU that does not answer: the rank could run no other command."""

    def without_effect(*_: int) -> None:
        pass

    with subprocess.Popen(["sleep", "600"]) as one:
        try:
            with monkeypatch.context() as patch:
                patch.setattr(exec_guard, "children", lambda: [one.pid])
                patch.setattr(exec_guard, "KILL_S", 0.05)
                patch.setattr(os, "kill", without_effect)
                exec_guard.kill_children()
            assert one.poll() is None
        finally:
            one.kill()


def alive(pid: int) -> bool:
    return os.access(f"/proc/{pid}", os.F_OK)
