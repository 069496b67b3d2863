"""SIGTERM and SIGHUP as Ctrl-C, for a command that undoes at its end what it began: their default action ends a process at once."""

import errno
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

import typer

#: Seconds until the SIGHUP of a closed terminal comes. Output fails from the moment in which it is closed.
_HANGUP_S: Final = 1.0


class EndSignals:
    """While it is entered, the first SIGTERM or SIGHUP raises KeyboardInterrupt, unless the process ignores that signal (`nohup`).

    The command then exits with 128 and the signal's number. Further ones do nothing: `timeout` and a closed terminal send two.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._received: int | None = None
        self._disregarded = False

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def disregard(self) -> None:
        """From now on they do nothing, because the command ends already. Ctrl-C still counts."""
        self._disregarded = True

    def _receive(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _silence()
        if not self._disregarded:
            self._disregarded, self._received = True, number
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._received is not None and (error is None or isinstance(error, KeyboardInterrupt | typer.Exit)):
            raise typer.Exit(128 + self._received) from None


@contextmanager
def hangup_awaited() -> Iterator[None]:
    """If the body's output fails because its terminal is closed, the SIGHUP that follows takes effect first. Else raises that OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            time.sleep(_HANGUP_S)
        raise


def _silence() -> None:
    """Discard what is printed later, except into a file: a closed terminal raises errors, and so does a pipe to what ended with it."""
    with Path(os.devnull).open("wb") as nothing:
        for number in (1, 2):
            with suppress(OSError):  # it was closed from the start
                if not stat.S_ISREG(os.fstat(number).st_mode):
                    os.dup2(nothing.fileno(), number)
