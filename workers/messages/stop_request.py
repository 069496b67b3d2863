"""A request to stop a run before its last step: all ranks end together, after the same step.

Each rank receives the request at a different time, and votes with the step's sums (`strategies/grad_clip.py`). So all ranks stop after
the same step, and no rank waits in a collective for one that has exited.
"""

from collections.abc import Callable
from enum import StrEnum


class Ending(StrEnum):
    """A stop request. `NO`, the empty one, is falsy: train on."""

    NO = ""
    STOP = "stop"
    SAVE = "save"  # stop, and save a checkpoint of the last step
    RETURN = "return"  # stop, so that workers return that are gone; no rank requests it (`trainer/own_clocks.py`)


#: Returns the request that this rank has received so far.
Asked = Callable[[], Ending]


def votes(asked: Ending) -> tuple[float, float]:
    """This rank's summands of two sums: the ranks that received `STOP`, and those that received `SAVE`."""
    return float(asked == Ending.STOP), float(asked == Ending.SAVE)


def agreed(stops: float, saves: float) -> Ending:
    """What all ranks do, by the sums of their votes. `STOP` takes precedence over `SAVE`: it saves nothing."""
    if stops:
        return Ending.STOP
    return Ending.SAVE if saves else Ending.NO
