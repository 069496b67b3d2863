"""Finds the rank that blocks a gang without progress, from the status of every rank. Decisions only.

A rank waits when it has entered a collective that is not done, or is in a message to or from another rank. It waits for the members of
that group that have not entered the same collective. The culprit is a rank for which others wait and which waits for none: a stopped
process, a sleeping one, one in an endless loop. When all wait, they have entered different collectives, and the one for which most
wait is named.
"""

import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...messages.rank_set import format_ranks
from ...messages.rank_status import BACKGROUND, QUICK

#: A hang is suspected after this many median steps, or `policy.hang_timeout_s` if that is longer.
MEDIAN_STEPS: Final = 5
#: Frames that only wait for other ranks, where no collective is on record: messages of pipelines and rings.
MESSAGES: Final = ("distributed_c10d.py:", "distributed/pipelining/", "strategies/collectives.py:")
#: Maximum number of different stacks in an incident. Of a thousand ranks nearly all are the same.
MOST_STACKS: Final = 16


def limit_s(hang_timeout_s: float, steps_s: Iterable[float]) -> float:
    """Seconds without progress that make a hang: max(`hang_timeout_s`, 5 × the median of `steps_s`)."""
    recent = list(steps_s)
    return max(hang_timeout_s, MEDIAN_STEPS * statistics.median(recent)) if recent else hang_timeout_s


class Progress:
    """When a gang made progress last, and so when a hang is suspected."""

    def __init__(self, hang_timeout_s: float) -> None:
        self._hang_timeout_s = hang_timeout_s
        self._steps: deque[float] = deque(maxlen=32)
        self.began()

    def began(self) -> None:
        """Restart the time without progress."""
        self._last = time.monotonic()

    def stepped(self, seconds: float) -> None:
        """A rank has trained a step."""
        self._steps.append(seconds)
        self.began()

    @property
    def limit_s(self) -> float:
        return limit_s(self._hang_timeout_s, self._steps)

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._last

    @property
    def left_s(self) -> float:
        """Seconds until a hang is suspected."""
        return max(0.0, self.limit_s - self.idle_s)


@dataclass(frozen=True)
class Waiting:
    """A collective that a rank has entered and that is not done."""

    group: str
    ranks: tuple[int, ...]
    seq: int
    op: str
    since_s: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return f"{self.op} {self.seq} of the {self.group} group ({format_ranks(self.ranks)})"


@dataclass(frozen=True)
class Examination:
    """The status of one rank."""

    rank: int
    state: str | None = None  # of its process, as /proc has it; None: it is gone
    answered: bool = False  # its control thread
    phase: str = ""
    step: int = 0
    idle_s: float = 0.0  # since the training thread's last beat
    stacks: tuple[tuple[str, tuple[str, ...]], ...] = ()  # thread name, frames with the innermost last
    entered: Mapping[tuple[str, tuple[int, ...]], int] | None = None  # group → number of the newest collective
    waiting: tuple[Waiting, ...] = ()

    @classmethod
    def of(cls, rank: int, facts: Mapping[str, Any]) -> "Examination":
        """From a rank actor's answer."""
        found = facts.get("collectives", [])
        groups = {(c["group"], tuple(c["ranks"])): int(c["entered"]) for c in found}
        waits = [_waiting(collective) for collective in found if "op" in collective]
        return cls(
            rank=rank,
            state=facts.get("state"),
            answered="phase" in facts,
            phase=facts.get("phase", ""),
            step=int(facts.get("step", 0)),
            idle_s=float(facts.get("idle_s", 0.0)),
            stacks=tuple((s["thread"], tuple(s["frames"])) for s in facts.get("stacks", [])),
            entered=groups,
            waiting=tuple(waits),
        )

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    @property
    def in_message(self) -> bool:
        """Whether a training thread waits in a message to or from another rank, which the flight recorder does not record."""
        own = [frames for name, frames in self.stacks if not name.startswith(BACKGROUND)]
        return any(any(sign in frame for sign in MESSAGES for frame in frames[-2:]) for frames in own)

    @property
    def waits(self) -> bool:
        """Whether the rank waits for another rank."""
        return bool(self.waiting) or self.in_message

    def moves(self, quick_s: float, slow_s: float) -> bool:
        """Whether the rank has made progress lately: within `quick_s`, or `slow_s` in a phase that may take long."""
        return self.answered and not self.stopped and self.idle_s < (quick_s if self.phase in QUICK else slow_s)


def hung(found: Sequence[Examination], quick_s: float, slow_s: float) -> bool:
    """Whether a gang without progress hangs, and gets no more time.

    A rank that is stopped, or that neither makes progress nor waits for another rank, blocks the others, whatever these wait for.
    """
    if any(one.stopped or not (one.waits or one.moves(quick_s, slow_s)) for one in found):
        return True
    return not any(one.moves(quick_s, slow_s) for one in found)


@dataclass(frozen=True)
class Verdict:
    """The culprit, and in which collective the others wait for it."""

    rank: int | None
    message: str
    waiting: Waiting | None = None


def diagnose(found: Sequence[Examination]) -> Verdict:
    """Name the rank that blocks the others."""
    waits = {one.rank: _waits_for(one, found) for one in found}
    stopped = [one.rank for one in found if one.stopped]
    free = [one.rank for one in found if not one.waits]
    awaited = Counter(rank for others in waits.values() for rank in others)
    culprits = stopped or [rank for rank in free if awaited[rank]] or free
    if culprits:
        return _accused(culprits[0], culprits, found, waits)
    if awaited:
        worst = max(awaited, key=lambda rank: (awaited[rank], -rank))
        return _accused(worst, [worst], found, waits)
    odd = _odd_one(found)
    return odd or Verdict(None, "every rank waits in a message to or from another one")


def _waits_for(one: Examination, found: Sequence[Examination]) -> set[int]:
    """The members of this rank's groups that have not entered what it waits in."""
    missing: set[int] = set()
    for wait in one.waiting:
        key = (wait.group, wait.ranks)
        late = [o.rank for o in found if o.rank in wait.ranks and (o.entered or {}).get(key, 0) < wait.seq]
        missing.update(rank for rank in late if rank != one.rank)
    return missing


def _accused(
    rank: int, culprits: Sequence[int], found: Sequence[Examination], waits: Mapping[int, set[int]]
) -> Verdict:
    accused = next(one for one in found if one.rank == rank)
    waiters = [one for one in found if rank in waits[one.rank]]
    shared = [one for one in found if one.rank != rank for wait in one.waiting if rank in wait.ranks]
    where = _first([w for one in waiters or shared for w in one.waiting if rank in w.ranks])
    more = [f"so are {format_ranks(culprits[1:])}"] if len(culprits) > 1 else []
    who = [one.rank for one in found if one.rank != rank and (where in one.waiting)]
    others = [f"{format_ranks(who)} {'wait' if len(who) > 1 else 'waits'} for it in {where}"] if who else []
    return Verdict(rank, "; ".join([_condition(accused), *more, *others]), where)


def _condition(one: Examination) -> str:
    if one.stopped:
        return "its process is stopped (SIGSTOP)"
    if not one.answered:
        return "its process lives but does not answer: something holds the interpreter's lock"
    if one.waiting:
        return f"it waits in {one.waiting[0]}, in another order than the others"
    at = next((frames[-1] for _, frames in one.stacks if frames), "an unknown place")
    return f"it is in its {one.phase} {one.step} at {at}"


def _waiting(collective: Mapping[str, Any]) -> Waiting:
    place = (collective["group"], tuple(collective["ranks"]), int(collective["seq"]), str(collective["op"]))
    return Waiting(*place, float(collective.get("since_s", 0.0)))


def _first(waits: Sequence[Waiting]) -> Waiting | None:
    """The collective that was entered first: the hang began there."""
    return max(waits, key=lambda wait: wait.since_s, default=None)


def _odd_one(found: Sequence[Examination]) -> Verdict | None:
    """All have entered the same number of one group, but not the same operation."""
    ops: dict[tuple[str, tuple[int, ...], int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        for wait in one.waiting:
            ops[wait.group, wait.ranks, wait.seq][wait.op].append(one.rank)
    for by_op in ops.values():
        if len(by_op) > 1:
            op, ranks = min(by_op.items(), key=lambda item: (len(item[1]), item[0]))
            wait = next(w for one in found if one.rank == ranks[0] for w in one.waiting if w.op == op)
            usual = max(by_op, key=lambda name: len(by_op[name]))
            return Verdict(ranks[0], f"it has entered {wait}, where the others have entered {usual}", wait)
    return None


def evidence(found: Sequence[Examination]) -> dict[str, Any]:
    """Stacks and waits, equal ones once with their ranks: what an incident keeps."""
    stacks: dict[str, list[int]] = defaultdict(list)
    waits: dict[Waiting, list[tuple[int, float]]] = defaultdict(list)
    for one in found:
        stacks[_text(one)].append(one.rank)
        for wait in one.waiting:
            waits[wait].append((one.rank, wait.since_s))
    groups = sorted(stacks.items(), key=lambda item: (len(item[1]), item[1]))[:MOST_STACKS]
    return {
        "stacks": [{"ranks": ranks, "stack": text} for text, ranks in groups],
        "waiting": [_wait_json(wait, who) for wait, who in list(waits.items())[:MOST_STACKS]],
    }


def _wait_json(wait: Waiting, who: Sequence[tuple[int, float]]) -> dict[str, Any]:
    what = {"group": wait.group, "members": list(wait.ranks), "seq": wait.seq, "op": wait.op}
    return what | {"ranks": [rank for rank, _ in who], "seconds": max(since for _, since in who)}


def _text(one: Examination) -> str:
    if not one.stacks:
        return f"no answer (process state {one.state or 'gone'})"
    return "\n".join(f"thread {name}:\n  " + "\n  ".join(frames) for name, frames in one.stacks)
