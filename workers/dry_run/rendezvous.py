"""Whether ranks that exchange messages ever wait for each other forever, if a send completes only when it is received (NCCL).

Nothing is buffered: a rank's batches run one after the other, and a batch is done when each of its messages has met its counterpart in
the batch that the other rank is at. A collective is a batch of its own, which meets that of every other rank of its group. So the
groups' streams are taken for one, as if no two of NCCL's kernels had room at the same time. Pure functions without torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from .report import Meeting, Message


@dataclass(frozen=True)
class _Collective:
    """A collective of the group of `ranks`."""

    ranks: str
    what: str
    batch: int


Item = Message | _Collective


class NoRendezvous(ValueError):
    """Messages or collectives that never meet. The text names the ranks and what they wait for."""


def check_rendezvous(
    messages: Mapping[int, Sequence[Message]], meetings: Mapping[int, Mapping[str, Sequence[Meeting]]] | None = None
) -> None:
    """Check the messages and collectives that each rank starts. Raises `NoRendezvous`.

    Ranks that are not among those of `messages` are always there.
    """
    collectives = {
        rank: [_Collective(ranks, one.what, one.batch) for ranks, met in own.items() for one in met]
        for rank, own in (meetings or {}).items()
    }
    batches = {rank: _batches([*own, *collectives.get(rank, ())]) for rank, own in messages.items()}
    waiting = {rank: own.pop(0) for rank, own in batches.items() if own}
    ready = set(waiting)
    while ready:
        rank = ready.pop()
        for item in list(waiting[rank]):
            ready |= _message(rank, item, waiting) if isinstance(item, Message) else _meeting(item, waiting, messages)
        if waiting[rank]:
            continue
        del waiting[rank]
        if batches[rank]:
            waiting[rank] = batches[rank].pop(0)
            ready.add(rank)
        ready &= waiting.keys()
    if waiting:
        stuck = [f"rank {rank} to {_text(own[0])}" for rank, own in sorted(waiting.items())]
        raise NoRendezvous(f"These wait for each other forever: {'; '.join(stuck)}.")


def _batches(items: Sequence[Item]) -> list[list[Item]]:
    ordered = sorted(items, key=lambda item: item.batch)
    return [list(batch) for _, batch in groupby(ordered, key=lambda item: item.batch)]


def _message(rank: int, message: Message, waiting: Mapping[int, list[Item]]) -> set[int]:
    """The other rank if it is at the counterpart; both are then done with it. Raises `NoRendezvous` if the two differ in size."""
    wanted = "recv" if message.what == "send" else "send"
    theirs = waiting.get(message.other, [])
    match = next((one for one in theirs if isinstance(one, Message) and (one.what, one.other) == (wanted, rank)), None)
    if match is None:
        return set()
    if (match.elements, match.dtype) != (message.elements, message.dtype):
        raise NoRendezvous(f"Rank {rank} waits to {_text(message)}, but rank {message.other} to {_text(match)}.")
    waiting[rank].remove(message)
    theirs.remove(match)
    return {message.other}


def _meeting(collective: _Collective, waiting: Mapping[int, list[Item]], known: Iterable[int]) -> set[int]:
    """The ranks of a collective if all are at it, which are then done with it."""
    ranks = set(known) & set(map(int, collective.ranks.split(",")))
    if not all(_at(waiting.get(rank, []), collective) for rank in ranks):
        return set()
    for rank in ranks:
        waiting[rank].clear()
    return ranks


def _at(batch: Sequence[Item], collective: _Collective) -> bool:
    wanted = (collective.ranks, collective.what)
    return any(isinstance(one, _Collective) and (one.ranks, one.what) == wanted for one in batch)


def _text(item: Item) -> str:
    if isinstance(item, _Collective):
        return f"start `{item.what}` in the group of ranks {item.ranks}"
    verb, side = ("send", "to") if item.what == "send" else ("receive", "from")
    return f"{verb} {item.elements} of {item.dtype.removeprefix('torch.')} {side} rank {item.other}"
