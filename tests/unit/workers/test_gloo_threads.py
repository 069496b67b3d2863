"""The end of a process that has threads of gloo: those at work are waited for, for a time, and those that wait are not."""

import ctypes
import hashlib
import threading
from collections.abc import Callable

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers import gloo_threads
from shardyard.workers.gloo_threads import NAME, let_late_ones_end

PR_SET_NAME = 15


def begun(work: Callable[[], object]) -> threading.Thread:
    """A thread that has the name of torch's, once this returns."""
    named = threading.Event()

    def run() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, NAME.encode(), 0, 0, 0)
        named.set()
        work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert named.wait(PATIENCE_S)
    return thread


def work_without_gil(rounds: int) -> None:
    """As a thread of gloo works."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", rounds)


def test_one_that_runs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_threads, "LATE_S", PATIENCE_S)
    monkeypatch.setattr(gloo_threads, "LOOKS", 10)  # on a busy machine two may find it where it waits for the GIL
    ended = threading.Event()

    def run() -> None:
        work_without_gil(1_000_000)
        ended.set()

    begun(run)
    let_late_ones_end()
    assert ended.is_set()


def test_one_that_waits_for_its_peer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_threads, "LATE_S", float("inf"))
    message = threading.Event()
    thread = begun(message.wait)
    let_late_ones_end()
    assert thread.is_alive()
    message.set()
    thread.join(PATIENCE_S)


def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_threads, "LATE_S", 0.05)
    stop = False

    def run() -> None:
        while not stop:
            work_without_gil(100_000)

    thread = begun(run)
    let_late_ones_end()
    assert thread.is_alive()
    stop = True
    thread.join(PATIENCE_S)
