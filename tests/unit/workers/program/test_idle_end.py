"""The program of a development job ends when no stream is open and no process of the job is busy, and not before."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.program import idle_end
from shardyard.workers.program.idle_end import JOB, use_of, wait_until_idle

#: A process that has a gate's name.
NAMED = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'streams:{}', 0, 0, 0); print(flush=True); time.sleep(1000)"
#: One that computes until it is killed.
BUSY = "print(flush=True)\nwhile True: pass"


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4().hex}"


@contextmanager
def process(job: str, script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the job, once it has printed a line."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments], env={**os.environ, JOB: job}, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


def test_streams_are_counted_by_the_names_of_the_jobs_own_processes(job: str) -> None:
    with process(job, NAMED.format(2)), process(job, NAMED.format(1)), process(job, NAMED.format(0)):
        assert use_of(job).streams == 3
        assert use_of(f"{job}x").streams == 0
        assert use_of(f"{job}x").cpu_s == {}


def test_a_users_process_may_have_any_name(job: str) -> None:
    with process(job, NAMED.format("in")), process(job, NAMED.format("")):
        assert use_of(job).streams == 0


def test_the_looks_of_other_ranks_are_no_use(job: str) -> None:
    """Each takes tens of milliseconds on a node with many processes, and a job may have eight ranks on it."""
    with process(job, BUSY, "shardyard.workers.program.idle_end"):
        assert use_of(job).cpu_s == {}


def test_cpu_time_is_that_between_two_looks(job: str) -> None:
    with process(job, "import time; print(flush=True); time.sleep(1000)"):
        before = use_of(job)
        with process(job, BUSY) as busy:
            deadline = time.monotonic() + PATIENCE_S
            while (used := use_of(job).since(before)) < 0.2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert used >= 0.2 and busy.pid in use_of(job).cpu_s
        assert use_of(job).since(use_of(job)) < 0.05


@pytest.mark.parametrize("script", [NAMED.format(1), BUSY], ids=["stream", "busy"])
def test_a_job_in_use_is_not_idle(job: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        slept(seconds)
        if looks == 20:
            used.kill()

    slept = time.sleep
    monkeypatch.setattr(idle_end.time, "sleep", sleep)
    with process(job, script) as used:
        wait_until_idle(job, 0.4)  # four looks without use
    assert looks >= 20


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


@pytest.mark.parametrize(("rank", "script", "status", "said"), [
    ("0", "import time; time.sleep(1000)", 0, "the job ends."),
    ("0", "raise SystemExit(3)", 3, ""),
    ("0", "import os; os.kill(os.getpid(), 9)", 137, ""),
    ("1", "raise SystemExit(3)", 0, "the job ends."),
], ids=["idle", "exits", "killed", "another rank"])  # fmt: skip
def test_a_server_ends_with_the_job_and_the_job_with_it(
    job: str, rank: str, script: str, status: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardyard.workers.program.idle_end", "0.5", "-c", script],
        env={**os.environ, JOB: job, "RANK": rank},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, said in done.stdout) == (status, True)


def test_it_needs_the_standard_library_only() -> None:
    script = (
        "import sys; from shardyard.workers.program import idle_end; print({'torch', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
