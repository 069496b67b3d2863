"""Compares a traced step's pipeline with the ideal one: the same passes, each with its measured duration, and messages that take no time.

bubble_measured of a rank = 1 − (time within its passes) / (last rank's end − first rank's begin of the schedule)

The times are on the gang's common clock, so that no barrier disturbs the step. The makespan may be wrong by two ranks' clock
errors, which are far below a millisecond. The simulation begins when the first rank began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..telemetry.clock_sync import Aligned
from ..telemetry.step_tracer import TRAINING, Recorded
from .bubble import Bubble, Measured
from .schedule_order import COMPUTES, Action, Kind, Order
from .simulator import Timed, simulate

#: Names of spans: the whole schedule, a stage's passes, and the loss, which is added to the forward pass before it.
SCHEDULE: Final = "schedule"
FORWARD, BACKWARD, BACKWARD_INPUT, WEIGHT = "forward", "backward", "backward of inputs", "backward of weights"
LOSS: Final = "loss"
_KINDS: Final[Mapping[str, Kind]] = {FORWARD: "F", BACKWARD: "B", BACKWARD_INPUT: "I", WEIGHT: "W"}


@dataclass(frozen=True)
class Passes:
    """One rank's part in one step: seconds by action, and the schedule's begin and end on the common clock."""

    seconds: Mapping[Action, float]
    began: float
    ended: float

    def of(self, kind: Kind) -> float:
        """Seconds of all actions of a kind."""
        return sum(length for action, length in self.seconds.items() if action.kind == kind)


@dataclass(frozen=True)
class Replay:
    """`place` is the rank's index in the pipeline; `ideal`: this rank's passes as simulated, in seconds of the common clock."""

    place: int
    bubble: Bubble
    ideal: Sequence[Timed]


def passes_of(recorded: Recorded, clock: Aligned) -> Passes:
    """The passes and the schedule's begin and end, from one rank's recording of a step.

    A pass that was cut into several spans takes their sum. A loss belongs to the forward pass before it.
    """
    seconds: dict[Action, float] = {}
    began = ended = clock.common(recorded.began)
    newest: Action | None = None
    for span in recorded.spans:
        if span.lane != TRAINING:
            continue
        if span.name == SCHEDULE:
            began, ended = (clock.common(recorded.began + at) for at in (span.start, span.end))
        elif span.name == LOSS and newest is not None:
            seconds[newest] += span.end - span.start
        elif span.name in _KINDS and span.stage is not None and span.microbatch is not None:
            action = Action(_KINDS[span.name], span.stage, span.microbatch)
            seconds[action] = seconds.get(action, 0.0) + span.end - span.start
            newest = action if action.kind == "F" else newest
    return Passes(seconds, began, ended)


def replay(order: Order, everyone: Sequence[Passes], place: int) -> Replay:
    """Compare one step, in which the pipeline's ranks ran the passes `everyone`, with the ideal one, for rank `place` of the pipeline."""
    began, ended = min(each.began for each in everyone), max(each.ended for each in everyone)
    seconds = {action: length for each in everyone for action, length in each.seconds.items()}
    timeline = simulate(order, Measured(seconds))
    busy = sum(everyone[place].seconds.values())
    bubble = Bubble(1 - busy / (ended - began) if ended > began else 0.0, timeline.bubble)
    passes = [timed for timed in timeline.ranks[place] if timed.action.kind in COMPUTES]
    return Replay(place, bubble, [Timed(timed.action, began + timed.start, began + timed.end) for timed in passes])


def in_own_step(mine: Passes, place: int, simulated: float) -> Replay:
    """Compare a rank's step with its passes without a wait between them, where ranks end steps at different times.

    `simulated`: the bubble of all ranks, once such a pipeline is full.
    """
    whole, ideal, at = mine.ended - mine.began, [], mine.began
    for action, length in mine.seconds.items():
        ideal.append(Timed(action, at, at + length))
        at += length
    return Replay(place, Bubble(1 - (at - mine.began) / whole if whole > 0 else 0.0, simulated), ideal)
