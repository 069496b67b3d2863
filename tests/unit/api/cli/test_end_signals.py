"""SIGTERM and SIGHUP as the first Ctrl-C of a command."""

import errno
import signal
from collections.abc import Iterator

import pytest
import typer

from shardyard.api.cli import end_signals
from shardyard.api.cli.end_signals import EndSignals, hangup_awaited

BOTH = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The signals' default actions, and output that is not discarded."""
    monkeypatch.setattr(end_signals, "silence", lambda: None)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_first_one_interrupts_and_is_the_exit_code(number: signal.Signals, code: int) -> None:
    with pytest.raises(typer.Exit) as left, EndSignals():
        try:
            signal.raise_signal(number)
            pytest.fail("it goes on")
        except KeyboardInterrupt:
            for again in BOTH:
                signal.raise_signal(again)
    assert left.value.exit_code == code
    assert [signal.getsignal(number) for number in BOTH] == [signal.SIG_DFL] * 2


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), typer.Exit(103)])
def test_it_is_the_exit_code_whichever_way_the_command_ends(raised: BaseException) -> None:
    with pytest.raises(typer.Exit) as left, EndSignals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise raised
    assert left.value.exit_code == 143


def test_an_error_is_not_hidden() -> None:
    with pytest.raises(ValueError, match="what failed"), EndSignals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise ValueError("what failed")


def test_a_command_that_ends_already_goes_on() -> None:
    with EndSignals() as signals:
        signals.disregard()
        for number in BOTH:
            signal.raise_signal(number)


def test_what_the_process_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with EndSignals():
        signal.raise_signal(signal.SIGHUP)


def test_output_that_fails_waits_for_the_hangup(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()
    monkeypatch.setattr(end_signals.time, "sleep", waits.append)
    for number in (errno.EIO, errno.ENOSPC):
        with pytest.raises(OSError, match="it") as raised, hangup_awaited():
            raise OSError(number, "it")
        assert raised.value.errno == number
    assert len(waits) == 1
    monkeypatch.setattr(end_signals.time, "sleep", lambda _: signal.raise_signal(signal.SIGHUP))
    with pytest.raises(typer.Exit) as left, EndSignals(), hangup_awaited():
        raise OSError(errno.EIO, "closed")
    assert left.value.exit_code == 129
