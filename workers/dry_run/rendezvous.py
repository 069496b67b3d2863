"""Whether ranks that exchange messages ever wait for each other forever, if a send completes only when it is received (NCCL).

Nothing is buffered: a rank's batches run one after the other, and a batch is done when each of its messages has met its counterpart in
the batch that the other rank is at. Pure functions without torch.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from .report import Message


class NoRendezvous(ValueError):
    """Messages that never meet. The text names the ranks and what they wait for."""


def check_rendezvous(messages: Mapping[int, Sequence[Message]]) -> None:
    """Check the messages that each rank starts, in order. Raises `NoRendezvous`."""
    batches = {
        rank: [list(batch) for _, batch in groupby(own, key=lambda m: m.batch)] for rank, own in messages.items()
    }
    waiting = {rank: own.pop(0) for rank, own in batches.items() if own}
    ready = set(waiting)
    while ready:
        rank = ready.pop()
        for message in list(waiting[rank]):
            if _meets(rank, message, waiting):
                ready.add(message.other)
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


def _meets(rank: int, message: Message, waiting: Mapping[int, list[Message]]) -> bool:
    """Whether the other rank is at the counterpart; if so, both are done with it. Raises `NoRendezvous` if the two differ in size."""
    wanted = "recv" if message.what == "send" else "send"
    theirs = waiting.get(message.other, [])
    match = next((one for one in theirs if one.what == wanted and one.other == rank), None)
    if match is None:
        return False
    if (match.elements, match.dtype) != (message.elements, message.dtype):
        raise NoRendezvous(f"Rank {rank} waits to {_text(message)}, but rank {message.other} to {_text(match)}.")
    waiting[rank].remove(message)
    theirs.remove(match)
    return True


def _text(message: Message) -> str:
    verb, side = ("send", "to") if message.what == "send" else ("receive", "from")
    return f"{verb} {message.elements} of {message.dtype.removeprefix('torch.')} {side} rank {message.other}"
