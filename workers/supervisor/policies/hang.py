"""When a gang without progress hangs, and what its incident keeps. Decisions only. `diagnosis.py` names the culprit."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...messages.gang_spec import GangSpec
from .diagnosis import Verdict
from .examination import Examination, Waiting

#: A hang is suspected after this many median steps, or `policy.hang_timeout_s` if that is longer.
MEDIAN_STEPS: Final = 5
#: Minimum time limit of collectives on NCCL where a hang is watched for. They are enqueued long before the device runs them.
NCCL_TIMEOUT_S: Final = 3600.0
#: Maximum number of different stacks in an incident. Of a thousand ranks nearly all are the same.
MOST_STACKS: Final = 16
#: The median is of this many of the newest steps.
MOST_STEPS: Final = 32


def limit_s(hang_timeout_s: float, steps_s: Iterable[float]) -> float:
    """Seconds without progress that make a hang: max(`hang_timeout_s`, 5 × the median of `steps_s`)."""
    recent = list(steps_s)
    return max(hang_timeout_s, MEDIAN_STEPS * statistics.median(recent)) if recent else hang_timeout_s


def collectives_timeout_s(spec: GangSpec) -> float:
    """Seconds after which a trainer's collective fails.

    On NCCL torch's watchdog then aborts the trainer. That must come after the verdict on a hang, which is due after `hang_timeout_s`, or
    after `timeout_s` in a phase that may be slow, or after some steps.
    """
    if spec.device != "cuda" or spec.hang_timeout_s is None:
        return spec.timeout_s
    return max(NCCL_TIMEOUT_S, 2 * max(spec.hang_timeout_s, spec.timeout_s))


class Progress:
    """When a gang made progress last, and so when a hang is suspected."""

    def __init__(self, hang_timeout_s: float) -> None:
        self._hang_timeout_s = hang_timeout_s
        self._steps: dict[int, float] = {}  # step → its seconds
        self.began()

    def began(self) -> None:
        """Restart the time without progress."""
        self._last = time.monotonic()

    def stepped(self, step: int, seconds: float) -> None:
        """A rank has trained a step. It counts once, however many ranks report it."""
        self._steps[step] = seconds
        if len(self._steps) > MOST_STEPS:
            del self._steps[next(iter(self._steps))]
        self.began()

    @property
    def limit_s(self) -> float:
        return limit_s(self._hang_timeout_s, self._steps.values())

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._last

    @property
    def left_s(self) -> float:
        """Seconds until a hang is suspected."""
        return max(0.0, self.limit_s - self.idle_s)


def hung(found: Sequence[Examination], quick_s: float, slow_s: float) -> bool:
    """Whether a gang without progress hangs, and gets no more time.

    A rank that is stopped, or that neither makes progress nor waits for another rank, blocks the others, whatever these wait for.
    """
    if any(one.stopped or not (one.waits or one.moves(quick_s, slow_s)) for one in found):
        return True
    return not any(one.moves(quick_s, slow_s) for one in found)


def evidence(found: Sequence[Examination], verdict: Verdict | None) -> dict[str, Any]:
    """Stacks and waits, equal ones once with their ranks: what an incident keeps, first those of the verdict."""
    named, waiting = (None, None) if verdict is None else (verdict.rank, verdict.waiting)
    stacks: dict[str, list[int]] = defaultdict(list)
    waits: dict[Waiting, list[tuple[int, float]]] = defaultdict(list)
    for one in found:
        stacks[_text(one)].append(one.rank)
        for wait in one.waiting:
            waits[wait].append((one.rank, wait.since_s))
    groups = sorted(stacks.items(), key=lambda item: (named not in item[1], len(item[1]), item[1]))[:MOST_STACKS]
    entered = sorted(waits.items(), key=lambda item: item[0] != waiting)[:MOST_STACKS]
    return {
        "stacks": [{"ranks": ranks, "stack": text} for text, ranks in groups],
        "waiting": [_wait_json(wait, who) for wait, who in entered],
    }


def _wait_json(wait: Waiting, who: Sequence[tuple[int, float]]) -> dict[str, Any]:
    what = {"group": wait.group, "members": list(wait.ranks), "seq": wait.seq, "op": wait.op}
    return what | {"ranks": [rank for rank, _ in who], "seconds": max(since for _, since in who)}


def _text(one: Examination) -> str:
    if not one.stacks:
        return f"no answer (process state {one.state or 'gone'})" + (f"\n{one.read}" if one.read else "")
    return "\n".join(str(stack) for stack in one.stacks)
