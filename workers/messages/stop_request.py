"""How a run ends before its last step: all ranks together, after the same step.

A rank hears the wish by itself, at its own time. What it has heard travels with the step's sums (`strategies/grad_clip.py`), so that all
ranks know it at the same step, and none is left waiting in a collective for one that has gone.
"""

from collections.abc import Callable
from enum import StrEnum


class Ending(StrEnum):
    """What is wished of a trainer. The empty one, false in conditions: to go on."""

    NO = ""
    STOP = "stop"
    SAVE = "save"  # stop, and leave a checkpoint of the last step


#: Says what was wished of this rank so far.
Asked = Callable[[], Ending]


def votes(asked: Ending) -> tuple[float, float]:
    """This rank's summands: of those who heard `STOP`, and of those who heard `SAVE`."""
    return float(asked == Ending.STOP), float(asked == Ending.SAVE)


def agreed(stops: float, saves: float) -> Ending:
    """What all ranks do, by the sums of their votes. Who stops does not want the state."""
    if stops:
        return Ending.STOP
    return Ending.SAVE if saves else Ending.NO
