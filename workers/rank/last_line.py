"""The last line that a rank's program has written to standard error, for the message of an exit status, which says nothing by itself."""

import re
from collections.abc import Iterable
from typing import Final

from ..messages.rank_event import PROGRAM_STARTS

#: The most characters of the line that are quoted. It is cut after secrets are replaced.
MOST: Final = 300
#: What this package itself writes to the log.
_OWN: Final = b"shardyard: "
#: Not a line that only underlines others.
_SAYS_SOMETHING: Final = re.compile(rb"\w")


class LastLine:
    """Of what is seen, the last line that says something. What was there before the program started does not count."""

    def __init__(self) -> None:
        self._line = b""

    def see(self, lines: Iterable[bytes]) -> None:
        """Lines of standard error, in order, without secrets."""
        for line in lines:
            if line == PROGRAM_STARTS.encode():
                self._line = b""
            elif not line.startswith(_OWN) and _SAYS_SOMETHING.search(line):
                self._line = line

    @property
    def text(self) -> str:
        """At most `MOST` characters; empty if there is no such line."""
        text = self._line.decode("utf-8", "replace").replace("\0", "\ufffd").strip()
        return text if len(text) <= MOST else f"{text[:MOST]}…"
