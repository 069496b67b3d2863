"""The program of a development job ends when no stream is open and no process of the job is busy, and not before."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager

import pytest
from harness.patience import PATIENCE_S
from harness.processes import started

from shardyard.workers.program import idle_end
from shardyard.workers.program.environment import AGENT
from shardyard.workers.program.idle_end import BUSY, JOB, LOOK_S, MODULE, Use, use_of, wait_until_idle
from shardyard.workers.program.report_socket import SOCKET

#: A process that has a gate's name.
NAMED = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'streams:{}', 0, 0, 0); print(flush=True); time.sleep(1000)"
#: One that waits, and one that computes, until it is killed.
WAITS = "import time; print(flush=True); time.sleep(1000)"
COMPUTES = "print(flush=True)\nwhile True: pass"
#: One whose children have computed for half a second and have ended, as the many short ones of a build.
BUILDS = """
import subprocess, sys, time
for _ in range(2):
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.25: pass"])
print(flush=True)
time.sleep(1000)
"""
#: One whose child computes as long as it lives, in a session of its own and without the job's variables.
HIDES = """
import os, subprocess, sys, time
script = f"import os\\nwhile os.getppid() == {os.getpid()}: pass"
child = subprocess.Popen([sys.executable, "-c", script], env={}, start_new_session=True)
print(flush=True)
time.sleep(1000)
"""


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4().hex}"


def process(job: str, script: str, *arguments: str) -> AbstractContextManager[int]:
    """A process of the job."""
    return started(script, *arguments, **{JOB: job})


def test_streams_are_counted_by_the_names_of_the_jobs_own_processes(job: str) -> None:
    with process(job, NAMED.format(2)), process(job, NAMED.format(1)), process(job, NAMED.format(0)):
        assert use_of(job).streams == 3
        assert use_of(f"{job}x") == Use(0, 0.0)


def test_a_process_with_a_name_like_a_gates_is_none(job: str) -> None:
    with process(job, NAMED.format("many")):
        assert use_of(job).streams == 0


@pytest.mark.parametrize("script", [COMPUTES, HIDES], ids=["its own", "below a process of the job"])
def test_what_processes_compute_is_use(job: str, script: str) -> None:
    with process(job, WAITS):
        before = use_of(job).cpu_s
        with process(job, script):
            deadline = time.monotonic() + PATIENCE_S
            while (used := use_of(job).cpu_s - before) < 1.0 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert used >= 1.0, "more than starts take"


def test_what_children_have_computed_before_they_ended_is_use(job: str) -> None:
    with process(job, BUILDS):
        assert use_of(job).cpu_s >= 0.45


def test_an_older_python_is_named_as_the_reason() -> None:
    """As of an environment of conda with Python 3.10, which the agent in it cannot let import this package."""
    script = f"import runpy, sitecustomize as agent; agent.SUPPORTED = False; runpy._run_module_as_main({MODULE!r})"
    command = [sys.executable, "-S", "-c", script]
    env = {name: value for name, value in os.environ.items() if name != SOCKET} | {"PYTHONPATH": str(AGENT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and "shardyard needs Python 3.11 or newer, and this is 3." in done.stderr


def test_looking_is_no_use(job: str) -> None:
    """A node with eight ranks has eight processes that look."""
    with process(job, BUILDS, "-m", MODULE):
        assert use_of(job) == Use(0, 0.0)


class Clock:
    """The time, and what the looks at a job find, one after the other; then nothing of it happens any more."""

    def __init__(self, looks: Iterable[Use], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._looks, self._last = 0.0, iter(looks), Use(0, 0.0)
        monkeypatch.setattr(idle_end, "time", self)
        monkeypatch.setattr(idle_end, "use_of", self.use_of)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def use_of(self, job: str) -> Use:
        self._last = next(self._looks, Use(0, self._last.cpu_s))
        return self._last


#: CPU seconds between two looks that are no use, as the most.
LEAST = BUSY * LOOK_S


@pytest.mark.parametrize(
    ("looks", "last"),
    [
        ([], 0),
        ([Use(1, 0.0)] * 30, 29),
        ([Use(0, 1.01 * LEAST * look) for look in range(1000)], 999),
        ([Use(0, 0.99 * LEAST * look) for look in range(1000)], 0),
        ([Use(0, 0.0)] * 5 + [Use(0, 2 * LEAST)] * 5, 5),
        ([Use(0, 100.0), Use(0, 1.0), Use(0, 1.0 + 2 * LEAST)], 2),
    ],
    ids=["unused", "a stream", "a computation", "a server without requests", "a command", "a process ended"],
)
def test_a_job_ends_once_it_was_idle_for_as_long_as_it_may(
    looks: list[Use], last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`last`: the number of the look that found the last use; that at the start is number 0."""
    clock = Clock(looks, monkeypatch)
    wait_until_idle("job", 60.0)
    assert clock.now == LOOK_S * last + 60.0


def test_a_job_in_use_ends_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock([Use(1, 0.0)] * 1000, monkeypatch)
    wait_until_idle("job", 60.0, lambda: clock.now >= 500.0)
    assert clock.now == 500.0


def test_an_idle_job_ends_and_says_why(job: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardyard.workers.program.idle_end", "0.5"],
        env={**os.environ, JOB: job},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No terminal and no port was in use for 0.5 s, and no process was busy: the job ends.\n"


@pytest.mark.parametrize(
    ("rank", "script"),
    [("0", "import time; time.sleep(1000)"), ("1", "raise SystemExit(3)")],
    ids=["idle", "another rank"],
)
def test_a_server_ends_with_the_job(job: str, rank: str, script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardyard.workers.program.idle_end", "0.5", "-c", script],
        env={**os.environ, JOB: job, "RANK": rank},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0 and "the job ends." in done.stdout


@pytest.mark.parametrize(
    ("script", "status"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)],
    ids=["exits", "killed"],
)
def test_a_job_ends_with_its_server(
    job: str, script: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Long before it would be idle: a server that starts slowly, on a busy machine, uses no core."""
    for name, value in ((JOB, job), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(idle_end, "LOOK_S", 0.05)
    assert idle_end.main([str(PATIENCE_S), "-c", script]) == status
    assert capsys.readouterr().out == ""


def test_it_needs_the_standard_library_only() -> None:
    script = (
        "import sys; from shardyard.workers.program import idle_end; print({'torch', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
