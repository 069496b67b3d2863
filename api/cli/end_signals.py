"""SIGTERM and SIGHUP as Ctrl-C, for a command that undoes at its end what it began: their default action ends a process at once."""

import errno
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self, TextIO, cast

import typer

from ..discarded_output import discard, silence

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
        self._output: tuple[Any, Any] | None = None

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def disregard(self) -> None:
        """From now on they do nothing, because the command ends already. Ctrl-C still counts.

        Output into a pipe without a reader is discarded: Ctrl-C ends the reader, too.
        """
        self._disregarded = True
        if self._output is None:
            self._output = sys.stdout, sys.stderr
            sys.stdout, sys.stderr = cast(TextIO, _Discarding(sys.stdout)), cast(TextIO, _Discarding(sys.stderr))

    def _receive(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            silence()
        if not self._disregarded:
            self._disregarded, self._received = True, number
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        if self._output is not None:
            sys.stdout, sys.stderr = self._output
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._received is not None and (error is None or isinstance(error, KeyboardInterrupt | typer.Exit)):
            raise typer.Exit(128 + self._received) from None


class _Discarding:
    """A stream as it is, but that discards its text once its pipe has no reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._held():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._held():
            self._stream.flush()

    @contextmanager
    def _held(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            discard(self._stream.fileno())


@contextmanager
def hangup_awaited() -> Iterator[None]:
    """If the body's output fails because its terminal is closed, the SIGHUP that follows takes effect first. Else raises that OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            time.sleep(_HANGUP_S)
        raise
