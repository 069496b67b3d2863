"""Names the rank that blocks a gang without progress, from the status of every rank, or no rank where none is to blame. Decisions only.

A rank waits for the members of a group that have not entered the collective that it waits in, and for the rank that has not entered the
other half of its message. The culprit is a rank for which others wait and which waits for none: a stopped process, a sleeping one, one in
an endless loop, one whose device does not end its own work. When all wait, it is the rank that entered another collective.

On NCCL the host enqueues collectives ahead of its device. How far it is ahead says nothing: only what a rank has not enqueued counts. No
rank is named if all members have entered the same collective and it is not done (the network or a device hangs), or if no rank waits.
The node of a named rank counts a fault, so a guess does harm.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...messages.rank_set import format_ranks
from ...messages.rank_status import PROGRAM
from .examination import Examination, Key, Waiting


@dataclass(frozen=True)
class Verdict:
    """The culprit, and in which collective the others wait for it."""

    rank: int | None
    message: str
    waiting: Waiting | None = None


def diagnose(found: Sequence[Examination], world_size: int | None = None) -> Verdict:
    """Name the rank that blocks the others, or none. `world_size`: ranks of the gang, also of those not examined; None: there are none."""
    ranks = {one.rank: one for one in found}
    waits = _all_waits(ranks)
    awaited = Counter(rank for others in waits.values() for rank in others)
    stopped = [one.rank for one in found if one.stopped]
    free = [one.rank for one in found if one.is_free]
    in_device = [one.rank for one in found if one.in_device_wait and awaited[one.rank]]
    culprits = stopped or [rank for rank in free if awaited[rank]] or in_device
    if culprits:
        return _accused(culprits, found, waits)
    odd = _odd_one(ranks) or _stuck(ranks)
    if odd is not None:
        return odd
    is_alone = (world_size or len(found)) == 1  # its device waits for no other rank
    sure = [rank for rank in free if is_alone or not ranks[rank].in_unknown_device_wait]
    if sure and (len(free) < len(found) or len(found) == 1):
        return _accused(sure, found, waits)
    return _in_circle(awaited, found, waits) or _no_rank(found)


def _all_waits(ranks: Mapping[int, Examination]) -> dict[int, set[int]]:
    """Rank → the ranks that have not entered what it waits in. Each collective is looked at once, though hundreds wait in it."""
    missing: dict[tuple[Key, int], frozenset[int]] = {}
    found = {}
    for one in ranks.values():
        waits: set[int] = set()
        for wait in one.waiting:
            if wait.peer is not None:
                waits |= _without(wait, one.rank, ranks)
                continue
            at = (wait.key, wait.seq)
            if at not in missing:
                missing[at] = _without(wait, one.rank, ranks)
            waits |= missing[at]
        found[one.rank] = waits - {one.rank}
    return found


def _without(wait: Waiting, rank: int, ranks: Mapping[int, Examination]) -> frozenset[int]:
    """The ranks that have not entered the collective, or the other half of the message, in which `rank` waits."""
    others = [ranks[other] for other in wait.others if other in ranks]
    return frozenset(other.rank for other in others if not _has_entered(other, wait, rank))


def _has_entered(other: Examination, wait: Waiting, rank: int) -> bool:
    """Whether `other` has entered the collective, or its half of the message, in which `rank` waits."""
    if wait.peer is None:
        return other.entered(wait) >= wait.seq
    return any(_are_halves(wait, theirs, rank) for theirs in other.waiting)


def _are_halves(wait: Waiting, theirs: Waiting, rank: int) -> bool:
    """Whether these are the send and the receive of one message. `rank`: whose `wait` it is."""
    return theirs.peer == rank and theirs.key == wait.key and theirs.op.split()[0] != wait.op.split()[0]


def _accused(culprits: Sequence[int], found: Sequence[Examination], waits: Mapping[int, set[int]]) -> Verdict:
    """The first of the culprits, with those that wait for it."""
    rank = culprits[0]
    accused = next(one for one in found if one.rank == rank)
    waiters = [one for one in found if rank in waits[one.rank]]
    shared = [one for one in found if one.rank != rank for wait in one.waiting if rank in wait.others]
    where = _first([w for one in waiters or shared for w in one.waiting if rank in w.others])
    more = [f"so are {format_ranks(culprits[1:])}"] if len(culprits) > 1 else []
    who = [one.rank for one in found if one.rank != rank and (where in one.waiting)]
    others = [f"{format_ranks(who)} {_wait(who)} for it in {where}"] if who else []
    return Verdict(rank, "; ".join([condition(accused), *more, *others]), where)


def condition(one: Examination) -> str:
    """What the rank does, in words."""
    if one.stopped:
        return "its process is stopped (SIGSTOP)"
    if not one.answered:
        return "its process lives but does not answer: something holds the interpreter's lock"
    if one.waiting:
        return f"it waits in {one.waiting[0]}, in another order than the others"
    if one.in_device_wait:
        return f"its host waits for its own device at {_place(one)}, and the device waits for no rank"
    where = "" if one.phase == PROGRAM else f"in its {one.phase} {one.step} "
    return f"it is {where}at {_place(one)}"


def _place(one: Examination) -> str:
    """The innermost frame of the training thread."""
    return next((stack.frames[-1] for stack in one.stacks if stack.frames), "an unknown place")


def _first(waits: Sequence[Waiting]) -> Waiting | None:
    """The collective that was entered first: the hang began there."""
    return max(waits, key=lambda wait: wait.since_s, default=None)


def _wait(ranks: Sequence[int]) -> str:
    return "wait" if len(ranks) > 1 else "waits"


def _everywhere(ranks: Mapping[int, Examination]) -> Iterator[tuple[Waiting, list[Examination]]]:
    """Each collective that a rank waits in and that all members of its group have entered, with these members."""
    seen = set()
    for one in ranks.values():
        for wait in one.waiting:
            if wait.peer is not None or (wait.key, wait.seq) in seen:
                continue
            seen.add((wait.key, wait.seq))
            members = [ranks[rank] for rank in wait.ranks if rank in ranks]
            if len(members) == len(wait.ranks) and all(member.entered(wait) >= wait.seq for member in members):
                yield wait, members


def _odd_one(ranks: Mapping[int, Examination]) -> Verdict | None:
    """The members have entered the same number of one group, but not the same operation, or with inputs of another size."""
    for wait, members in _everywhere(ranks):
        entered: dict[tuple[str, str], list[int]] = defaultdict(list)
        for member in members:
            what = member.what(wait)
            if what is not None:
                entered[what].append(member.rank)
        if len(entered) > 1:
            return _odd_verdict(wait, entered)
    return None


def _odd_verdict(wait: Waiting, entered: Mapping[tuple[str, str], Sequence[int]]) -> Verdict:
    """The smallest minority is named, unless another one is as small."""
    (odd, ranks), (other, others) = sorted(entered.items(), key=lambda item: (len(item[1]), item[0]))[:2]
    group = f"of the {wait.group} group ({format_ranks(wait.ranks)})"
    if len(ranks) == len(others):
        message = f"{format_ranks(ranks)} entered {_named(odd, wait)}, {format_ranks(others)} {_named(other, wait)}"
        return Verdict(None, f"{message}, {group}", wait)
    usual = max(entered, key=lambda what: len(entered[what]))
    message = f"it has entered {_named(odd, wait)} {group}, where the others have entered {_named(usual, wait)}"
    return Verdict(ranks[0], message, wait)


def _named(what: tuple[str, str], wait: Waiting) -> str:
    op, size = what
    return f"{op} {wait.seq}" + (f" with {size}" if size else "")


def _stuck(ranks: Mapping[int, Examination]) -> Verdict | None:
    """A collective or a message that all of its ranks have entered, and wait in before all others, and that is not done."""
    for wait, members in _everywhere(ranks):
        if all(_is_oldest(wait, member) for member in members):
            return _not_done(wait, members)
    for one in ranks.values():
        for wait in one.oldest:
            peer = None if wait.peer is None else ranks.get(wait.peer)
            if peer is not None and any(_are_halves(wait, theirs, one.rank) for theirs in peer.oldest):
                pair = format_ranks(sorted((one.rank, peer.rank)))
                message = f"{pair} have both entered their message of the {wait.group} group, and it is not done"
                return Verdict(None, f"{message}: the network or a device hangs", wait)
    return None


def _is_oldest(wait: Waiting, member: Examination) -> bool:
    return any(own.peer is None and (own.key, own.seq) == (wait.key, wait.seq) for own in member.oldest)


def _not_done(wait: Waiting, members: Sequence[Examination]) -> Verdict:
    """No rank is to blame, unless torch records that the devices of some have not begun what the others' have."""
    late = [member.rank for member in members if not any(own.started for own in member.oldest)]
    if 0 < len(late) < len(members):
        begun = [member.rank for member in members if member.rank not in late]
        more = [f"nor have those of {format_ranks(late[1:])}"] if len(late) > 1 else []
        message = f"its host has enqueued {wait}, and its device has not begun it"
        others = f"{format_ranks(begun)} {_wait(begun)} for it there"
        return Verdict(late[0], "; ".join([message, *more, others]), wait)
    return Verdict(None, f"all its ranks have entered {wait}, and it is not done: the network or a device hangs", wait)


def _in_circle(
    awaited: Mapping[int, int], found: Sequence[Examination], waits: Mapping[int, set[int]]
) -> Verdict | None:
    """Ranks that wait for each other have entered collectives in different orders. The one for which most wait is named."""
    if not awaited:
        return None
    most = max(awaited.values())
    worst = [rank for rank, count in awaited.items() if count == most]
    if len(worst) == 1:
        return _accused(worst, found, waits)
    where = "; ".join(f"rank {one.rank} waits in {one.oldest[0]}" for one in found if one.rank in worst and one.oldest)
    return Verdict(None, f"{format_ranks(sorted(worst))} wait for each other, in different orders: {where}")


def _no_rank(found: Sequence[Examination]) -> Verdict:
    if unknown := [one.rank for one in found if one.in_unknown_device_wait]:
        who = format_ranks(unknown)
        return Verdict(None, f"no flight recorder says whether the devices of {who} wait for another rank")
    if all(one.is_free for one in found):
        places = sorted({_place(one) if one.answered else "no answer" for one in found})
        return Verdict(None, f"no rank waits for another one: all are at {', '.join(places[:4])}")
    if any(one.in_device_wait for one in found):
        return Verdict(None, "every rank waits for its own device, and no collective or message is pending")
    return Verdict(None, "every rank waits in a message to or from another one")
