"""The order in which a pipeline's ranks act, read from the schedule object that runs. Imports no torch.

Torch's schedules of several stages per rank interpret a list of actions, which is read here. GPipe and 1F1B are loops in torch's
code; their orders are derived. (Torch has a list for 1F1B, but does not run it: its last rank lacks the first forward.) A test
records real ranks and finds the same orders, for all schedules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

#: B is a whole backward pass; I and W are its two halves: gradient of the input, gradient of the weights.
Kind = Literal["F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"]

#: Kinds that keep a rank busy; sending and receiving continue beside them.
COMPUTES: tuple[Kind, ...] = ("F", "B", "I", "W")
_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}


@dataclass(frozen=True)
class Action:
    """One action of a rank, written as `2F0`: forward of micro-batch 0 through stage 2."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


#: For each pipeline rank its actions, in order.
Order = tuple[tuple[Action, ...], ...]


def order_of(schedule: Any, name: str, ranks: int, microbatches: int) -> Order:
    """The order of torch's schedule object `schedule`, called `name` in layouts."""
    if name == "gpipe":
        return tuple(tuple(_gpipe(rank, ranks, microbatches)) for rank in range(ranks))
    if name == "1f1b":
        return tuple(tuple(_1f1b(rank, ranks, microbatches)) for rank in range(ranks))
    listed = schedule.pipeline_order_with_comms
    return tuple(tuple(_read(listed[rank])) for rank in range(ranks))


def peaks(order: Order) -> list[int]:
    """For each rank the maximum number of (stage, micro-batch) pairs whose activations it holds at once.

    It holds them from a forward to the end of its backward.
    """
    return [_peak(actions) for actions in order]


def _peak(actions: Sequence[Action]) -> int:
    held = most = _carried(actions)
    for action in actions:
        held += {"F": 1, "B": -1, "W": -1}.get(action.kind, 0)
        most = max(most, held)
    return most


def _carried(actions: Sequence[Action]) -> int:
    """Pairs that the step before has left: those between a stage's first backward pass in the order and its first forward pass."""
    first: dict[tuple[bool, int], int] = {}
    for action in actions:
        if action.kind in ("F", "B", "W"):
            key = (action.kind == "F", action.stage)
            first[key] = min(action.microbatch, first.get(key, action.microbatch))
    return sum(first[True, stage] - first[False, stage] for forward, stage in first if forward)


def _read(listed: Sequence[Any]) -> Iterator[Action]:
    """Torch's actions without those that gather and reduce parameters. Of a pair the forward pass, which begins, comes first."""
    for action in listed:
        for part in action.sub_actions or (action,):
            kind = _KINDS.get(part.computation_type.value)
            if kind is not None:
                yield Action(kind, part.stage_index, part.microbatch_index)


def _gpipe(rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
    """All forward passes, then all backward passes (1811.06965)."""
    for microbatch in range(microbatches):
        yield from _forward(rank, ranks, microbatch)
    for microbatch in range(microbatches):
        yield from _backward(rank, ranks, microbatch)


def _1f1b(rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
    """p − i forward passes on 0-based rank i, then backward and forward in turn (PipeDream-Flush, 2104.04473, section 2.2)."""
    ahead = min(microbatches, ranks - rank)
    for microbatch in range(ahead):
        yield from _forward(rank, ranks, microbatch)
    for microbatch in range(microbatches):
        yield from _backward(rank, ranks, microbatch)
        if microbatch + ahead < microbatches:
            yield from _forward(rank, ranks, microbatch + ahead)


def delayed_order(ranks: int, microbatches: int) -> Order:
    """A step of 2BW whose ranks end it together, in the steady state: in each of m slots every rank runs a forward and a backward pass.

    Micro-batches m, m + 1, … are the next step's first. Rank i (0-based) is 2(p − 1) − i micro-batches ahead in its forward passes, and i
    ahead in its backward passes, of rank 0's backward pass. What comes before the order, the step before has done.
    """
    return tuple(tuple(_delayed(rank, ranks, microbatches)) for rank in range(ranks))


def _delayed(rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
    for slot in range(microbatches):
        forward, backward = ahead(rank, ranks, slot)
        yield Action("F", rank, forward)
        if rank < ranks - 1:
            yield Action("SEND_F", rank, forward)
        if rank > 0:
            yield Action("RECV_F", rank, forward + 1)
        yield Action("B", rank, backward)
        if rank > 0:
            yield Action("SEND_B", rank, backward)
        if rank < ranks - 1:
            yield Action("RECV_B", rank, backward + 1)


def alternating_order(ranks: int, microbatches: int = 1) -> Order:
    """Forward and backward passes in turns, in the steady state: steps of PipeDream (1806.03377), or one of 2BW (2006.09503).

    Rank i (0-based) is p − 1 − i micro-batches ahead in its forward passes. So micro-batches from number m on are those of later steps.
    """
    numbers = range(microbatches)
    return tuple(
        tuple(action for number in numbers for action in _in_turn(rank, ranks, number)) for rank in range(ranks)
    )


def _in_turn(rank: int, ranks: int, backward: int) -> Iterator[Action]:
    number = backward + ranks - 1 - rank
    yield Action("F", rank, number)
    if rank < ranks - 1:
        yield Action("SEND_F", rank, number)
    if rank > 0:
        yield Action("RECV_F", rank, number + 1)
    if rank < ranks - 1:
        yield Action("RECV_B", rank, backward)
    yield Action("B", rank, backward)
    if rank > 0:
        yield Action("SEND_B", rank, backward)


def ahead(rank: int, ranks: int, slot: int) -> tuple[int, int]:
    """The micro-batches of the forward and the backward pass that 2BW's `rank` runs in `slot`; negative: none yet."""
    return slot + 2 * (ranks - 1) - rank, slot + rank


def _forward(rank: int, ranks: int, microbatch: int) -> Iterator[Action]:
    if rank > 0:
        yield Action("RECV_F", rank, microbatch)
    yield Action("F", rank, microbatch)
    if rank < ranks - 1:
        yield Action("SEND_F", rank, microbatch)


def _backward(rank: int, ranks: int, microbatch: int) -> Iterator[Action]:
    if rank < ranks - 1:
        yield Action("RECV_B", rank, microbatch)
    yield Action("B", rank, microbatch)
    if rank > 0:
        yield Action("SEND_B", rank, microbatch)
