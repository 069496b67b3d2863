"""A rank ends as its program did, also if a shell was around it, and leaves no dump."""

import os
import resource
import signal
from pathlib import Path

import pytest

from shardyard.workers.messages.rank_event import FailedEvent
from shardyard.workers.program.preparation import ProgramFailed
from shardyard.workers.program.program_end import end_like


def ended_like(code: int, folder: Path) -> int:
    """The status of a process that may dump its core into a folder."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if (child := os.fork()) == 0:
        try:
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_CORE, (most, most))
            end_like(code, None)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("shell", [False, True])
def test_a_rank_is_ended_by_the_programs_signal_and_dumps_no_core(
    tmp_path: Path, number: signal.Signals, shell: bool
) -> None:
    """Its memory has the job's secrets. A shell whose program was killed exits with the signal's number and 128."""
    status = ended_like(128 + number if shell else -number, tmp_path)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
    assert not os.WCOREDUMP(status) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [1, 128, 130, 255])
def test_any_other_status_is_the_programs_own(code: int) -> None:
    with pytest.raises(ProgramFailed, match=f"status {code}"):
        end_like(code, None)


def test_an_exception_is_the_cause_whatever_the_status() -> None:
    with pytest.raises(ProgramFailed, match="ValueError: wrong"):
        end_like(128 + signal.SIGABRT, FailedEvent(type="ValueError", message="wrong", traceback=""))
