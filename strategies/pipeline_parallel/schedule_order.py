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
    held = most = 0
    for action in actions:
        held += {"F": 1, "B": -1, "W": -1}.get(action.kind, 0)
        most = max(most, held)
    return most


def _read(listed: Sequence[Any]) -> Iterator[Action]:
    """Torch's actions without those that gather and reduce parameters. An overlapped pair is run one after the other."""
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
