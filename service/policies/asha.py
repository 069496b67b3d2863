"""Decides which trials of a sweep begin, pause, continue and end. It touches nothing.

Asynchronous successive halving: Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020), algorithm 2. One deviation: a
trial that is among the best of its rung when it reaches it continues without a pause. Another: when no other trial is left, the best of the
highest rung continues to its end, so that each sweep has a trial that was not stopped.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

#: A trial without a job; one whose job runs or waits; one that was stopped at a rung and may continue; one that ran to its end; one that
#: failed, or was given up.
Standing = Literal["waiting", "active", "paused", "done", "over"]


@dataclass(frozen=True)
class Trial:
    """`values`: the metric at each rung that the trial reached, lowest rung first; None if it was not finite. Lower is better."""

    number: int
    standing: Standing
    values: tuple[float | None, ...] = ()


class Action(StrEnum):
    BEGIN = "begin"
    STOP = "stop"
    CONTINUE = "continue"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class Decision:
    """What happens to a trial. STOP: it leaves its devices at this rung. CONTINUE: it is resumed. GIVE_UP: it is not needed any more."""

    action: Action
    number: int


@dataclass(frozen=True)
class Limits:
    """`parallel`: trials that are active, at most. `reduction`: of ASHA; None if trials are never stopped. `final`: stopped trials end, so
    that the first one at a rung continues, whatever its value."""

    parallel: int
    reduction: int | None = None
    final: bool = False


_NOTHING: Final = float("inf")


def decide(trials: Sequence[Trial], limits: Limits, reached: Collection[int]) -> list[Decision]:
    """What to do now. `reached`: the active trials that have come to a rung since the last decision; `values` has it already.

    Returns an empty list when there is nothing to do until a trial reaches a rung or ends.
    """
    best = _best(trials, limits)
    stopped = [one.number for one in trials if one.number in reached and not _is_best(one, best)]
    active = sum(trial.standing == "active" for trial in trials) - len(stopped)
    follow = [
        *_promotions(trials, best),
        *(Decision(Action.BEGIN, one.number) for one in trials if one.standing == "waiting"),
    ]
    follow = follow[: max(0, limits.parallel - active)]
    if active or follow:
        return [*(Decision(Action.STOP, number) for number in stopped), *follow]
    return _last(trials, stopped)


def _best(trials: Sequence[Trial], limits: Limits) -> list[frozenset[int]]:
    """By rung the trials that are among the best 1/reduction of those that reached it."""
    found: list[frozenset[int]] = []
    if limits.reduction is None:
        return []
    for rung in range(max((len(trial.values) for trial in trials), default=0)):
        there = [(_key(trial.values[rung]), trial.number) for trial in trials if len(trial.values) > rung]
        finite = sorted(one for one in there if one[0] != _NOTHING)
        share = (len(there) + (limits.reduction - 1 if limits.final else 0)) // limits.reduction
        found.append(frozenset(number for _, number in finite[:share]))
    return found


def _is_best(trial: Trial, best: Sequence[frozenset[int]]) -> bool:
    return bool(trial.values) and trial.number in best[len(trial.values) - 1]


def _promotions(trials: Sequence[Trial], best: Sequence[frozenset[int]]) -> Iterator[Decision]:
    """Paused trials that are among the best of their rung by now, highest rung first, the best of a rung first."""
    paused = [one for one in trials if one.standing == "paused" and best and _is_best(one, best)]
    for trial in sorted(paused, key=_merit):
        yield Decision(Action.CONTINUE, trial.number)


def _last(trials: Sequence[Trial], stopped: Sequence[int]) -> list[Decision]:
    """No other trial is active or may begin: the best stopped one continues, unless a trial has run to its end. The others are given up."""
    left = [one for one in trials if one.standing == "paused" or one.number in stopped]
    able = sorted((one for one in left if one.values and one.values[-1] is not None), key=_merit)
    if not able or any(one.standing == "done" for one in trials):
        return [Decision(Action.GIVE_UP, one.number) for one in left]
    winner = able[0].number
    others = [Decision(Action.STOP, number) for number in stopped if number != winner]
    return others if winner in stopped else [*others, Decision(Action.CONTINUE, winner)]


def _merit(trial: Trial) -> tuple[int, float, int]:
    """Sorts trials with values: highest rung first, the best of a rung first."""
    return -len(trial.values), _key(trial.values[-1]), trial.number


def _key(value: float | None) -> float:
    return _NOTHING if value is None else value
