"""Simulates a pipeline's order: start and end of every action, the makespan and the bubble. Pure functions without torch.

A rank computes one action at a time, in its order. A message leaves at its place in that order (which may be after the next
computation: torch sends after both halves of DualPipeV's pairs) and takes `communication`. It keeps no rank busy, and the action
that needs it waits for it. Nothing is sent between two stages of one rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .schedule_order import COMPUTES, Action, Order, alternating_order


class Times(Protocol):
    """How long actions and messages take, in any one unit."""

    @property
    def communication(self) -> float: ...

    def of(self, action: Action) -> float: ...


@dataclass(frozen=True)
class Durations:
    """Times per stage, in any one unit, for one micro-batch; a whole backward pass takes both halves' time."""

    forward: Sequence[float]
    backward_input: Sequence[float]
    backward_weight: Sequence[float]
    communication: float = 0.0

    def of(self, action: Action) -> float:
        """How long `action` takes."""
        stage = action.stage
        match action.kind:
            case "F":
                return self.forward[stage]
            case "I":
                return self.backward_input[stage]
            case "W":
                return self.backward_weight[stage]
            case "B":
                return self.backward_input[stage] + self.backward_weight[stage]
        return self.communication


@dataclass(frozen=True)
class Timed:
    """An action with its times. A receive lasts from its message's departure to its arrival."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """Every rank's actions in its order, with times from 0."""

    ranks: tuple[tuple[Timed, ...], ...]

    @property
    def makespan(self) -> float:
        return max((timed.end for rank in self.ranks for timed in rank), default=0.0)

    def busy(self, rank: int) -> float:
        """How long a rank computes."""
        return sum(timed.end - timed.start for timed in self.ranks[rank] if timed.action.kind in COMPUTES)

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they compute nothing: (p−1)/(m+p−1) for GPipe and 1F1B with equal stages."""
        whole = self.makespan * len(self.ranks)
        return 1 - sum(map(self.busy, range(len(self.ranks)))) / whole if whole else 0.0


class Stuck(ValueError):
    """An order in which ranks wait for each other forever. The message names the actions that wait."""


def evenly(work: Sequence[float]) -> Durations:
    """Durations of stages with this work: a forward pass and either half of a backward pass each take a third of it."""
    third = [share / 3 for share in work]
    return Durations(third, third, third)


def simulate(order: Order, durations: Times) -> Timeline:
    """Run `order`. Raises `Stuck` if it cannot complete.

    A stage runs its micro-batches in order. So what is needed of one before its first in the order was done in an earlier step.
    """
    owners = {action.stage: rank for rank, actions in enumerate(order) for action in actions if action.kind == "F"}
    first = _first(order)
    waiting = [[action for action in actions if not action.kind.startswith("RECV")] for actions in order]
    position, clock = [0] * len(order), [0.0] * len(order)
    times: dict[_Done, Timed] = {}
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(waiting):
            while position[rank] < len(actions):
                action = actions[position[rank]]
                arrival = _arrival([need for need in _needed(action, owners) if not _is_before(need, first)], times)
                if arrival is None:
                    break
                start = max(clock[rank], arrival)
                timed = times[_done(action)] = Timed(action, start, start + durations.of(action))
                clock[rank] = timed.end if action.kind in COMPUTES else start
                position[rank] += 1
                progress = True
    stuck = [str(actions[at]) for actions, at in zip(waiting, position, strict=True) if at < len(actions)]
    if stuck:
        raise Stuck(f"these wait for each other: {', '.join(stuck)}")
    return Timeline(tuple(tuple(_timed(action, times) for action in actions) for actions in order))


def steady_bubble(durations: Durations, meeting_every: int | None = None) -> float:
    """The idle share of ranks with a stage each that run passes in turns and do not end steps together, once the pipeline is full.

    It is what further micro-batches take, less what the ranks compute in it. `meeting_every`: after that many micro-batches the first and
    the last rank wait for each other, as those do that share a weight. Then no pass of the last rank hides those that the others have left.
    """
    ranks = len(durations.forward)
    if meeting_every is not None:
        return simulate(alternating_order(ranks, meeting_every), durations).bubble
    few, many = (simulate(alternating_order(ranks, several * ranks), durations) for several in (4, 8))
    busy = sum(many.busy(rank) - few.busy(rank) for rank in range(ranks))
    return 1 - busy / ranks / (many.makespan - few.makespan)


#: What an action finishes: (kind, stage, micro-batch). For the actions that wait for it, the gradient of the input counts as the backward
#: pass.
_Done = tuple[str, int, int]


def _done(action: Action) -> _Done:
    return ("B" if action.kind == "I" else action.kind, action.stage, action.microbatch)


def _source(action: Action, owners: Mapping[int, int]) -> _Done | None:
    """What `action` needs from another stage: that stage's result, or the message that carries it from another rank."""
    kind = {"F": "F", "B": "B", "I": "B"}.get(action.kind)
    stage = action.stage + (-1 if kind == "F" else 1)
    if kind is None or stage not in owners:
        return None
    return (kind if owners[stage] == owners[action.stage] else f"SEND_{kind}", stage, action.microbatch)


def _needed(action: Action, owners: Mapping[int, int]) -> list[_Done]:
    """What must be done before `action`."""
    own: _Done | None = None
    if action.kind in ("B", "I", "W"):
        own = ("F" if action.kind != "W" else "B", action.stage, action.microbatch)
    return [need for need in (own, _source(action, owners)) if need is not None]


def _first(order: Order) -> dict[tuple[str, int], int]:
    """The first micro-batch of each kind and stage."""
    found: dict[tuple[str, int], int] = {}
    for kind, stage, microbatch in (_done(action) for actions in order for action in actions):
        found[kind, stage] = min(microbatch, found.get((kind, stage), microbatch))
    return found


def _is_before(need: _Done, first: Mapping[tuple[str, int], int]) -> bool:
    kind, stage, microbatch = need
    return microbatch < first.get((kind, stage), 0)


def _arrival(needed: Sequence[_Done], times: Mapping[_Done, Timed]) -> float | None:
    """When all that is needed is there, or None if that is not known yet."""
    if any(need not in times for need in needed):
        return None
    return max((times[need].end for need in needed), default=0.0)


def _timed(action: Action, times: Mapping[_Done, Timed]) -> Timed:
    """`action` with its start and end. A receive lasts as long as its message is in transit."""
    if not action.kind.startswith("RECV_"):
        return times[_done(action)]
    kind, stage = action.kind.removeprefix("RECV_"), action.stage + (-1 if action.kind == "RECV_F" else 1)
    sent = times[f"SEND_{kind}", stage, action.microbatch]
    return Timed(action, sent.start, sent.end)
