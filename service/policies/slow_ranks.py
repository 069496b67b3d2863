"""Decides which ranks are slow, window by window (samples, every five seconds): noise marks none, and a mark does not flicker.

A rank is behind in a window if its busy time is more than a share `MORE` above its peers' median, is `SIGMAS` standard deviations
above it (estimated by the median absolute deviation), and lengthens the step by a twentieth. It is slow after `WINDOWS` such
windows in a row, and no longer after as many in which it was less than `LESS` above. One window is not enough: undisturbed means
over 5 s vary by 6% on a busy machine. Peers do an equal share of the work. A rank without peers is not judged here (the incident
`straggler` compares it with its own past).
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...workers.supervisor.policies.straggler import MANY, WORTH
from ..schemas.rank import SlowRank

#: Shares of the peers' median.
MORE: Final = 0.2
LESS: Final = 0.1
WINDOWS: Final = 3
SIGMAS: Final = 3.0
#: A normal distribution's standard deviation over its median absolute deviation.
_NORMAL: Final = 1.4826


@dataclass(frozen=True)
class Marks:
    """What one window passes to the next: rank → windows in a row in which it was `behind`, or, being `slow`, was not."""

    behind: Mapping[int, int] = field(default_factory=dict)
    slow: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: Mapping[str, Mapping[str, int]]) -> "Marks":
        return cls(*({int(rank): count for rank, count in value.get(name, {}).items()} for name in ("behind", "slow")))

    def as_json(self) -> dict[str, Any]:
        return {"behind": dict(self.behind), "slow": dict(self.slow)}


@dataclass(frozen=True)
class _Window:
    """One rank in one window, in seconds per step: its busy time, its peers' median, their usual spread, and the step."""

    busy_s: float
    usual_s: float
    spread_s: float
    step_s: float

    @property
    def more_s(self) -> float:
        return self.busy_s - self.usual_s

    @property
    def behind(self) -> bool:
        return self.more_s > max(MORE * self.usual_s, self.spread_s, WORTH * self.step_s)

    @property
    def keeps_up(self) -> bool:
        return self.more_s < LESS * self.usual_s


def marked(
    before: Marks, busy_s: Sequence[float | None], wait_s: Sequence[float | None], parts: Sequence[int]
) -> Marks:
    """The marks after one more window. Seconds by rank, None if a rank reported none; `parts`: which part of the work each rank does."""
    windows = _windows(busy_s, wait_s, parts)
    behind = {rank: before.behind.get(rank, 0) + 1 for rank, window in windows.items() if window.behind}
    slow = {rank: count + 1 if rank in windows and windows[rank].keeps_up else 0 for rank, count in before.slow.items()}
    slow = {rank: count for rank, count in slow.items() if count < WINDOWS}
    slow |= {rank: 0 for rank, count in behind.items() if count >= WINDOWS}
    return Marks({rank: count for rank, count in behind.items() if rank not in slow}, slow)


def slow_rank(
    marks: Marks, busy_s: Sequence[float | None], wait_s: Sequence[float | None], parts: Sequence[int]
) -> SlowRank | None:
    """Of the slow ranks, the one that is furthest behind its peers in this window; None if there is none."""
    windows = {rank: window for rank, window in _windows(busy_s, wait_s, parts).items() if rank in marks.slow}
    rank = max(windows, key=lambda rank: windows[rank].more_s, default=None)
    if rank is None or windows[rank].more_s <= 0:
        return None
    one = windows[rank]
    message = f"rank {rank} computes {_format_seconds(one.more_s)} longer than its peers"
    return SlowRank(rank=rank, busy_s=one.busy_s, usual_s=one.usual_s, message=message)


def _windows(
    busy_s: Sequence[float | None], wait_s: Sequence[float | None], parts: Sequence[int]
) -> dict[int, _Window]:
    """The windows of the ranks that have peers."""
    known = {rank: seconds for rank, seconds in enumerate(busy_s) if seconds is not None}
    if len(known) < 2:
        return {}
    step_s = statistics.median(seconds + (wait_s[rank] or 0.0) for rank, seconds in known.items())
    peers: dict[int, list[int]] = defaultdict(list)
    for rank in known:
        peers[parts[rank]].append(rank)
    found: dict[int, _Window] = {}
    for ranks in peers.values():
        together = _middle([known[rank] for rank in ranks]) if len(ranks) >= MANY else None
        for rank in ranks if len(ranks) > 1 else ():
            middle = together or _middle([known[other] for other in ranks if other != rank])
            found[rank] = _Window(known[rank], *middle, step_s)
    return found


def _middle(seconds: Sequence[float]) -> tuple[float, float]:
    """The median, and `SIGMAS` standard deviations."""
    median = statistics.median(seconds)
    return median, SIGMAS * _NORMAL * statistics.median(abs(one - median) for one in seconds)


def _format_seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
