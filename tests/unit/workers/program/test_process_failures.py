"""Which exceptions of a program's processes can be why it has ended."""

import json
import math
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.rank_event import FailedEvent
from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.program import launch, process_failures
from shardyard.workers.program.agents import Agents, listening
from shardyard.workers.program.environment import environment
from shardyard.workers.program.preparation import ProgramFailed, Start
from shardyard.workers.program.process_failures import CAUSE_S, ProcessFailures
from shardyard.workers.program.program import Program
from shardyard.workers.trainer.instruments import Instruments


def failure(message: str) -> FailedEvent:
    return FailedEvent(type="ValueError", message=message, traceback="")


def ended(failures: ProcessFailures, pid: int, at: float) -> FailedEvent:
    """The exception of a process that ended at this time."""
    one = failures.add(pid, failure(str(pid)))
    assert one is not None
    one.ended_at = at
    return one.event


def fail(agents: Agents, pid: int) -> None:
    """As a process that raises an exception and ends."""
    with socket.socket(socket.AF_UNIX) as process:
        process.connect("\0" + agents.name)
        failed = {"type": "ValueError", "message": "m", "traceback": ""}
        process.sendall(json.dumps({"pid": pid, "failed": failed}).encode() + b"\n")


def test_only_what_ended_shortly_before_the_program_or_lives_can_be_the_cause() -> None:
    failures = ProcessFailures()
    ended(failures, 1, 100.0)
    later = ended(failures, 2, 200.0)
    failures.add(3, failure("lives"))
    assert failures.causes(200.0 + CAUSE_S, None) == {2: later, 3: failure("lives")}
    assert list(failures.causes(300.0 + CAUSE_S, 1)) == [1, 3], "the program's own process is why it ended"
    assert list(failures.causes(100.0, None)) == [1, 2, 3], "a rank's report may be late"


def test_a_process_that_reports_again_has_its_newest_exception() -> None:
    failures = ProcessFailures()
    failures.add(1, failure("first"))
    assert failures.add(1, failure("second")) is None, "its end is waited for already"
    assert failures.causes(0.0, None) == {1: failure("second")}
    ended(failures, 2, 0.0)
    assert failures.add(2, failure("of another process with this id")) is not None


def test_an_old_exception_gives_way_to_the_first_of_those_that_may_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_failures, "MOST_FAILURES", 3)
    failures = ProcessFailures()
    ended(failures, 1, -math.inf)
    for pid in range(2, 7):
        ended(failures, pid, time.monotonic())
    assert list(failures.causes(-math.inf, None)) == [2, 5, 6]


@pytest.mark.parametrize(("cause_s", "cause"), [(math.inf, "ValueError"), (-math.inf, None)])
def test_an_exception_that_a_program_has_survived_is_not_why_it_is_killed(
    cause_s: float, cause: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell goes on after `python … || true`, and hours later what it runs is killed: then the rank is, and is repaired."""
    ends: list[tuple[int, str | None]] = []

    def end_like(code: int, of: FailedEvent | None) -> None:
        ends.append((code, of and of.type))
        raise InterruptedError

    monkeypatch.setattr(process_failures, "CAUSE_S", cause_s)
    monkeypatch.setattr(launch, "end_like", end_like)
    monkeypatch.setattr(launch, "_wait", lambda process, *_: (process.wait(), StopRequest.NO)[1])
    program = Program("a-job", ("sh", "-c", f"{sys.executable} -c 'raise ValueError'; exit 137"))
    with listening(lambda *_: None) as agents:
        start = Start(tmp_path, environment({}, [agents.name], None, os.environ))
        reports: Any = launch._Reports(agents, print, None, None, ExitStack())  # type: ignore[arg-type]
        instruments = Instruments(stop_request=lambda: StopRequest.NO)
        with pytest.raises(InterruptedError):
            launch._lead(program, start, reports, lambda *_: None, instruments)
    assert ends == [(137, cause)]


@pytest.mark.parametrize(("later_s", "is_cause"), [(0.0, True), (CAUSE_S + PATIENCE_S, False)])
def test_a_rank_that_torchrun_has_started_again_is_not_why_the_program_fails_later(
    later_s: float, is_cause: bool
) -> None:
    instruments = Instruments(stop_request=lambda: StopRequest.NO)
    with listening(print) as leader, listening(print) as agents, ThreadPoolExecutor(1) as pool:
        fail(agents, 7)
        reports: Any = launch._Reports(agents, print, None, None, ExitStack())  # type: ignore[arg-type]
        followed = pool.submit(launch._follow, leader.name, reports, lambda *_: None, instruments)
        while not leader._waiting:
            assert not followed.done()
        leader.release(time.monotonic() + later_s)
        error = followed.exception(PATIENCE_S)
    assert isinstance(error, ProgramFailed) if is_cause else error is None


def test_a_process_ends_long_after_its_exception_where_its_functions_of_atexit_take_long(tmp_path: Path) -> None:
    """Such as those that upload. A second report of the process does not end the wait for it."""
    script = """
import atexit, sys
def wait():
    print("raised", flush=True)
    sys.stdin.read()
atexit.register(wait)
try:
    int("x")
except ValueError:
    sys.excepthook(*sys.exc_info())
raise KeyError("y")
"""
    with listening(print) as agents:
        env = environment({}, [agents.name], None, os.environ)
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", script]
        pipe, text = subprocess.PIPE, True
        with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=text) as process:
            assert process.stdout is not None and process.stdout.readline() == "raised\n"
            fail(agents, 1)
            kept = agents._failures._kept
            while 1 not in kept or kept[1].ended_at == math.inf:
                time.sleep(0.01)
            time.sleep(0.1)
            assert (kept[process.pid].event.type, kept[process.pid].ended_at) == ("KeyError", math.inf)
            _, errors = process.communicate(timeout=PATIENCE_S)
        assert "Warning" not in errors
        while kept[process.pid].ended_at == math.inf:
            time.sleep(0.01)
