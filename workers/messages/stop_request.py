"""A request to stop a run before its last step: all ranks end together, after the same step.

Each rank receives the request at a different time, and votes with the step's sums (`strategies/grad_clip.py`). So all ranks stop after
the same step, and no rank waits in a collective for one that has exited.
"""

from collections.abc import Callable
from enum import StrEnum


class StopRequest(StrEnum):
    """A stop request. `NO`, the empty one, is falsy: train on."""

    NO = ""
    STOP = "stop"
    SAVE = "save"  # stop, and save a checkpoint of the last step
    RETURN = "return"  # stop, so that workers return that are gone; no rank requests it (`trainer/own_clocks.py`)


#: Returns the request that this rank has received so far.
StopSource = Callable[[], StopRequest]


def stop_votes(asked: StopRequest) -> tuple[float, float]:
    """This rank's summands of two sums: the ranks that received `STOP`, and those that received `SAVE`."""
    return float(asked == StopRequest.STOP), float(asked == StopRequest.SAVE)


def agreed_stop(stops: float, saves: float) -> StopRequest:
    """What all ranks do, by the sums of their votes. `STOP` takes precedence over `SAVE`: it saves nothing."""
    if stops:
        return StopRequest.STOP
    return StopRequest.SAVE if saves else StopRequest.NO
