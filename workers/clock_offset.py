"""How far another machine's clock is behind this one, by the times that its answers had when they were sent.

Rule that it keeps: an answer's difference is that of the clocks and how long the answer was on its way, or waited to be read. So the
smallest difference of the last answers counts.
"""

from collections import deque
from typing import Final

#: Answers that count.
ANSWERS: Final = 32
#: The clock was set, or another machine answers, if this many answers in a row are later than the others by this many seconds.
LATER: Final = 4
LATER_S: Final = 5.0


class ClockOffset:
    """That of one machine's clock."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=ANSWERS)

    def add(self, behind_s: float) -> None:
        """An answer was read this many seconds after the time that it had."""
        self._last.append(behind_s)
        newest = [*self._last][-LATER:]
        if len(newest) == LATER and min(newest) > min(self._last) + LATER_S:
            self._last = deque(newest, maxlen=ANSWERS)

    @property
    def seconds(self) -> float:
        """What is to be added to the machine's times; 0 without an answer."""
        return min(self._last, default=0.0)
