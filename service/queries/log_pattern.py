"""A regular expression that log lines are compared with, in time linear in their length, whatever the pattern.

The engine is RE2 (https://github.com/google/re2/wiki/Syntax), which has no backreferences and no look-around, and therefore never tries a
line again. Its time is at most the length of the line times the size of the compiled pattern, which is bounded here. The databases' own
engines are not used: PostgreSQL's backtracks for backreferences and has no such bound, and SQLite has none.
"""

import time
from collections.abc import Sequence
from typing import Final

import re2
from sqlalchemy.engine import RowMapping

from ..search_errors import InvalidPattern

#: Instructions of a compiled pattern. `\w{1,100}` has a few hundred.
MOST_INSTRUCTIONS: Final = 2_000
#: Bytes for one pattern and its states. Compiled patterns are kept by the library, at most 128.
MOST_BYTES: Final = 1 << 20


class LogPattern:
    """A pattern in RE2's syntax that may match anywhere in a line. Case is ignored unless it begins with `(?-i)`."""

    def __init__(self, text: str) -> None:
        """Raises InvalidPattern, with the place of what is wrong."""
        options = re2.Options()
        options.case_sensitive = False
        options.never_capture = True
        options.log_errors = False
        options.max_mem = MOST_BYTES
        try:
            self._compiled = re2.compile(text.encode(), options)
        except re2.error as error:
            raise InvalidPattern(_explained(text, error), field="text", remedy=_REMEDY) from None
        if self._compiled.programsize > MOST_INSTRUCTIONS:
            message = f"The pattern is too large: its repetitions are {self._compiled.programsize:,} instructions, of at most "
            raise InvalidPattern(f"{message}{MOST_INSTRUCTIONS:,}.", field="text", remedy="Use smaller repetitions.")

    def matches(self, line: str) -> bool:
        return self._compiled.search(line.encode()) is not None

    def first(self, rows: Sequence[RowMapping], most: int, until: float) -> tuple[list[RowMapping], int]:
        """The first `most` rows whose `text` matches, and how many rows were read: all, or until there were enough or `until` was over.

        `until` is a time of `time.monotonic`. At least one row is read, so that a search advances.
        """
        found: list[RowMapping] = []
        for number, row in enumerate(rows, 1):
            if self.matches(row["text"]):
                found.append(row)
            if len(found) == most or time.monotonic() > until:
                return found, number
        return found, len(rows)


_REMEDY: Final = "Put a backslash before a sign that stands for itself, as in \\[rank 0\\]. The syntax is RE2's: no look-around, no \\1."


def _explained(text: str, error: Exception) -> str:
    """The library's error as a sentence. It names what is wrong as a part of the pattern, after a colon."""
    raw = error.args[0] if error.args else ""
    said = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    what, _, part = said.partition(": ")
    place = text.find(part) if part and part != text else -1
    where = f": {part[:80]!r} at character {place + 1}" if place >= 0 else ""
    return f"The pattern is not a regular expression: {what}{where}."
