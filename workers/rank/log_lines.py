"""Cuts what a process prints into the lines of its log.

A carriage return ends a line, too, so that a progress bar is seen as it moves. Of the bars of `BAR_S` only the newest is a line.
"""

import codecs
import math
import time
from typing import Final

from .secret_mask import SecretMask

MAX_LINE: Final = 8192
#: Seconds between two lines of a progress bar.
BAR_S: Final = 1.0


class LogLines:
    """The lines of one stream. A line over `longest` bytes is cut into several."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._bar_at = -math.inf
        self._returned = False  # whether the newest line has ended with a carriage return, which a newline may follow
        self._rest = b""

    @property
    def rest(self) -> bytes:
        """The beginning of a line whose end has not been printed."""
        return _shown(self._rest)

    def take(self, data: bytes, mask: SecretMask) -> list[bytes]:
        """The lines (perhaps none) that are complete with this data, without secrets."""
        if self._returned:
            data = data.removeprefix(b"\n")
        *lines, rest = mask.hide(self._rest + data).replace(b"\r\n", b"\n").split(b"\n")
        lines, self._returned = [_shown(line) for line in lines], False
        bars, ended, after = rest.rpartition(b"\r")
        if ended:
            bar, now = _shown(bars).rstrip(), time.monotonic()  # of spaces only: it is cleared
            rest = bar + ended + after
            if bar and now - self._bar_at >= BAR_S:
                lines.append(bar)
                rest, self._bar_at, self._returned = after, now, not after
        at = _whole(rest, len(rest) - mask.overlap)  # the rest of it may be the beginning of a secret
        if at >= self._longest:
            lines.append(_shown(rest[:at]))
            rest = rest[at:]
        self._rest = rest
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it has no end."""
        rest, self._rest = self.rest, b""
        return [rest] if rest else []


def cut(line: bytes) -> list[bytes]:
    """A line in parts of at most `MAX_LINE` bytes."""
    parts = []
    while len(line) > MAX_LINE:
        at = _whole(line, MAX_LINE)
        parts.append(line[:at])
        line = line[at:]
    return [*parts, line]


def _shown(line: bytes) -> bytes:
    """What a terminal shows of a line in the end: each carriage return begins it again."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _whole(line: bytes, at: int) -> int:
    """`at`, or the bytes before it where a cut splits no character of UTF-8."""
    begin = max(0, at - 4)
    return begin + codecs.utf_8_decode(line[begin : max(0, at)], "replace", False)[1] or at
