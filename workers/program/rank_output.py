"""The output of several ranks as one: whole lines, each with its rank, to the stream that it was written to.

A carriage return ends a line, too, so that a progress bar is printed as it moves. A line of more than 64 KiB is printed in parts.
"""

import contextlib
import os
import select
import threading
from collections.abc import Mapping
from typing import IO, Final

from ..messages.metric_block import MetricBlock, columns

_MOST_LINE: Final = 1 << 16
#: Steps that are printed of one block; of more, the last ones.
_MOST_STEPS: Final = 10
#: Seconds to read what ranks wrote before they ended.
_END_S: Final = 10.0


class RankOutput:
    """Prints the lines of `ranks` ranks. `streams`: the descriptors for `stdout` and `stderr`. Any thread may call it."""

    def __init__(self, ranks: int, streams: Mapping[str, int]) -> None:
        self._names = ranks > 1
        self._streams = streams
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.closed = threading.Event()
        """Set when the reader of the output is gone."""

    def follow(self, rank: int, stream: str, pipe: IO[bytes]) -> None:
        """Print what comes through a pipe, until all its writers have closed it."""
        thread = threading.Thread(target=self._copy, args=(rank, stream, pipe), name=f"rank {rank}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def print_metrics(self, rank: int, blocks: list[MetricBlock]) -> None:
        """Print a line for each step at which a rank has logged."""
        for block in blocks:
            steps: dict[int, list[str]] = {}
            for name, points in columns(block):
                for step, value in points:
                    steps.setdefault(step, []).append(f"{name} {'not finite' if value is None else f'{value:.6g}'}")
            for step in list(steps)[-_MOST_STEPS:]:
                self.print_line(rank, "stdout", f"step {step}: {', '.join(steps[step])}".encode())

    def print_line(self, rank: int, stream: str, line: bytes) -> None:
        name = b"[rank %d] " % rank if self._names else b""
        with self._lock:
            try:
                _write(self._streams[stream], name + line + b"\n")
            except OSError:
                self.closed.set()

    def finish(self) -> None:
        """Print what is left, when all ranks have ended."""
        for thread in self._threads:
            thread.join(_END_S)

    def _copy(self, rank: int, stream: str, pipe: IO[bytes]) -> None:
        rest, returned = b"", False
        with contextlib.suppress(OSError), pipe:
            while part := os.read(pipe.fileno(), _MOST_LINE):
                if returned:  # its line is printed, and this is the other half of that line's end
                    part = part.removeprefix(b"\n")
                returned = part.endswith(b"\r")
                *lines, rest = (rest + part).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    self.print_line(rank, stream, line)
                if len(rest) >= _MOST_LINE:
                    self.print_line(rank, stream, rest)
                    rest = b""
        if rest:
            self.print_line(rank, stream, rest)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it. Another process that has the same terminal may have made its descriptor one that does not block."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
