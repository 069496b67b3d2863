"""Calls that a rank does not wait for once it is to end."""

import threading
from collections.abc import Iterator

import pytest

from shardyard.workers.program.files import interruption as module
from shardyard.workers.program.files.interruption import begun, result_of, tried
from shardyard.workers.program.files.remote import Unanswered
from shardyard.workers.program.shared_folder import EndRequested


def test_a_call_that_does_not_end_keeps_no_caller() -> None:
    never = threading.Event()
    with pytest.raises(EndRequested):
        result_of(begun(never.wait, "waits"), lambda: True)
    never.set()


def test_a_time_out_of_the_call_itself_is_raised() -> None:
    def times_out() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        result_of(begun(times_out, "fails"), lambda: pytest.fail("it has ended"))


def test_what_is_not_answered_is_tried_again_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", (0.0, 0.0))
    answers: Iterator[str] = iter(["no", "no", "yes", "no", "no", "no", "yes"])

    def ask() -> str:
        if (answer := next(answers)) == "no":
            raise Unanswered("later")
        return answer

    assert tried(ask, lambda: False) == "yes"
    with pytest.raises(Unanswered):
        tried(ask, lambda: False)
    assert tried(ask, lambda: False) == "yes"


def test_a_source_that_says_when_is_not_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", (0.0,))
    answers = iter(["limited"])

    def ask() -> str:
        raise Unanswered(next(answers), 3600.0)

    with pytest.raises(EndRequested):
        tried(ask, lambda: True)


def test_a_rank_that_is_to_end_does_not_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", (3600.0,))

    def ask() -> str:
        raise Unanswered("later")

    with pytest.raises(EndRequested):
        tried(ask, lambda: True)
