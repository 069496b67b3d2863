"""Finds a straggler: a rank that works longer than usual, so that all others wait for it. Decisions only.

A rank is late in a step when its own time (`strategies/telemetry/wait_time.py`) is over `factor` times the usual one, lies outside
of its peers' spread, and makes the step longer by a twentieth. The usual time is the median of its peers: ranks with an equal share
of the work (`Mesh.part`). A rank without peers, such as a pipeline's stage without replicas, is compared with its own past, and with
how all others have changed since.

It is a straggler once it has been late in nearly all of the last `steps` steps for `seconds`, and none any more when it has been late in
few of as many steps: one episode has one beginning and one end. Steps in which no rank measured its time count as seconds only.
Memory is for the last `steps` steps of each rank. A step's work grows with the ranks, not with `steps`.
"""

import math
import statistics
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from ...messages.event_buffer import Ranks
from ...messages.gang_spec import StragglerLimits
from ...messages.rank_set import format_ranks
from .failures import Failure

#: Shares of late steps among the last ones at which an episode begins and ends.
NEARLY_ALL: Final = 0.8
FEW: Final = 0.2
#: A straggler is this many standard deviations beyond its peers' median; the median absolute deviation estimates them.
DEVIATIONS: Final = 6 * 1.4826
#: Less than this share of the step is ignored.
WORTH: Final = 0.05
#: Steps at a generation's start that are ignored, because they are not representative.
WARM_UP: Final = 2
#: From this number of peers on, one of them hardly moves their median.
MANY: Final = 16


@dataclass(frozen=True)
class StragglersState:
    """The ranks that are behind, and every rank's usual compute time in a step, in seconds."""

    behind: list[int] = field(default_factory=list)
    usual_s: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """One rank in one step: seconds; without peers `usual_s` is its own past's. `since_s`: seconds of all steps before it."""

    step: int
    since_s: float
    busy_s: float
    usual_s: float
    step_s: float
    late: bool


@dataclass
class Track:
    """What is known of one rank."""

    recent: deque[Observation]
    late: int = 0  # the number of late ones among them
    usual_s: float | None = None  # the median of its first steps' own times, once there are enough
    past: list[float] = field(default_factory=list)  # those, until then
    since: tuple[int, float] | None = None  # step and time since which it has been late in nearly all steps

    def add(self, look: Observation) -> None:
        """Append the newest observation. The oldest goes if there are enough."""
        if len(self.recent) == self.recent.maxlen:
            self.late -= self.recent[0].late
        self.recent.append(look)
        self.late += look.late


@dataclass(frozen=True)
class Finding:
    """An episode's beginning (`slow`) or end. Seconds are medians over the last steps; no `peers`: against the rank's own past."""

    rank: int
    slow: bool
    step: int  # the first step that is meant
    busy_s: float
    usual_s: float
    step_s: float
    peers: tuple[int, ...]

    def failure(self, node: str | None) -> Failure:
        """Its incident, for which there is no repair."""
        evidence = {"since": self.step, "busy_s": self.busy_s, "usual_s": self.usual_s, "peers": list(self.peers)}
        cause = "straggler" if self.slow else "straggler_over"
        return Failure(cause, self.rank, self._message(), node, evidence=evidence)

    def _message(self) -> str:
        work = f"since step {self.step} its compute time is {_ms(self.busy_s)} of each {_ms(self.step_s)} step"
        usual = (
            f"its peers' {_ms(self.usual_s)} ({format_ranks(self.peers)})"
            if self.peers
            else f"its earlier {_ms(self.usual_s)}"
        )
        if not self.slow:
            return f"{work}, compared with {usual}"
        times = f"{self.busy_s / self.usual_s:.1f} × " if self.usual_s else "more than "
        return f"{work}, {times}{usual}; the others wait for it"


class Stragglers:
    """Examines every complete step of one generation. `limits` None: none."""

    def __init__(self, limits: StragglerLimits | None) -> None:
        self._limits = limits
        self._open: set[int] = set()
        self._tracks: dict[int, Track] = {}
        self.renew()

    def renew(self) -> None:
        """For the next generation. Usual times remain, and an open episode ends when its rank keeps up."""
        self._tracks = {rank: Track(self._window(), usual_s=track.usual_s) for rank, track in self._tracks.items()}
        self._seen, self._seconds = 0, 0.0

    def to_state(self) -> StragglersState:
        """One number per rank; the last steps are not kept."""
        usual = {rank: track.usual_s for rank, track in self._tracks.items() if track.usual_s is not None}
        return StragglersState(sorted(self._open), usual)

    @classmethod
    def from_state(cls, limits: StragglerLimits | None, state: StragglersState) -> Self:
        stragglers = cls(limits)
        stragglers._open = set(state.behind)
        stragglers._tracks = {
            rank: Track(stragglers._window(), usual_s=seconds) for rank, seconds in state.usual_s.items()
        }
        return stragglers

    def _window(self) -> deque[Observation]:
        return deque(maxlen=self._limits.steps if self._limits else 0)

    def add(self, ranks: Ranks) -> list[Finding]:
        """The episodes that begin or end with a step, of which `ranks` has each rank's record."""
        own = {rank: float(record["busy_s"]) for rank, record in ranks.items() if record.get("busy_s")}
        if not own:  # not measured in this step
            self._seconds += statistics.median(float(record.get("step_s") or 0.0) for record in ranks.values())
        if self._limits is None or len(own) < 2:
            return []
        step = int(next(iter(ranks.values()))["step"])
        step_s = statistics.median(seconds + float(ranks[rank].get("wait_s") or 0.0) for rank, seconds in own.items())
        before, self._seconds = self._seconds, self._seconds + step_s
        self._seen += 1
        if self._seen <= WARM_UP:
            return []
        self._remember(own)
        found: list[Finding] = []
        parts = _parts(ranks, own).values()
        usual = self._usual(parts, own)
        for members in parts:
            for rank in members:
                limit_s = self._limit(*usual[rank])
                late = own[rank] > limit_s and own[rank] - usual[rank][0] > WORTH * step_s
                self._tracks[rank].add(Observation(step, before, own[rank], usual[rank][0], step_s, late))
                found += self._judge(rank, members)
        return found

    def _remember(self, own: dict[int, float]) -> None:
        for rank, seconds in own.items():
            track = self._tracks.setdefault(rank, Track(self._window()))
            if track.usual_s is None:
                track.past.append(seconds)
                if len(track.past) == track.recent.maxlen:
                    track.usual_s = statistics.median(track.past)
                    track.past.clear()

    def _usual(self, parts: Collection[Sequence[int]], own: dict[int, float]) -> dict[int, tuple[float, float]]:
        """Rank → its usual time, and the spread above it that is normal."""
        found = self._own_pasts([members[0] for members in parts if len(members) == 1], own)
        for members in parts:
            if len(members) >= MANY:
                found |= dict.fromkeys(members, middle([own[rank] for rank in members]))
            elif len(members) > 1:
                found |= {rank: middle([own[other] for other in members if other != rank]) for rank in members}
        return found

    def _own_pasts(self, alone: Sequence[int], own: dict[int, float]) -> dict[int, tuple[float, float]]:
        """As `_usual` for ranks without peers: longer where all others have become slower too; infinite as long as there is no past."""
        if not alone:
            return {}
        past = {rank: self._tracks[rank].usual_s for rank in own}
        slower = {rank: now / before if (before := past[rank]) else 1.0 for rank, now in own.items()}
        in_order = sorted(slower.values())
        others = {rank: max(1.0, median_without(slower[rank], in_order)) for rank in alone}
        return {rank: (math.inf if (mine := past[rank]) is None else mine * others[rank], 0.0) for rank in alone}

    def _limit(self, usual_s: float, spread: float) -> float:
        """The longest time that is not late."""
        assert self._limits is not None
        return max(self._limits.factor * usual_s, usual_s + spread)

    def _judge(self, rank: int, members: Sequence[int]) -> list[Finding]:
        """Whether an episode of this rank begins or ends with its last step."""
        assert self._limits is not None
        track, limits = self._tracks[rank], self._limits
        share, first = track.late / limits.steps, track.recent[0]
        if share < NEARLY_ALL:
            track.since = None
        elif track.since is None:
            track.since = (next(look.step for look in track.recent if look.late), first.since_s)
        if rank in self._open and share <= FEW and len(track.recent) == limits.steps:
            self._open.discard(rank)
            return [_finding(rank, False, first.step, track.recent, members)]
        if rank not in self._open and track.since and self._seconds - track.since[1] >= limits.seconds:
            self._open.add(rank)
            return [_finding(rank, True, track.since[0], track.recent, members)]
        return []


def _parts(ranks: Ranks, own: dict[int, float]) -> dict[int, list[int]]:
    """Part of the work → the ranks that do it."""
    parts: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(own):
        parts[int(ranks[rank].get("part") or 0)].append(rank)
    return parts


def median_without(one: float, in_order: Sequence[float]) -> float:
    """The median of sorted numbers without one of them."""
    place, (half, odd) = bisect_left(in_order, one), divmod(len(in_order) - 1, 2)
    low, high = (in_order[number + (number >= place)] for number in (half - 1 + odd, half))
    return low if odd else (low + high) / 2


def middle(seconds: Sequence[float]) -> tuple[float, float]:
    """The median, and the normal spread about it."""
    median = statistics.median(seconds)
    return median, DEVIATIONS * statistics.median(abs(one - median) for one in seconds)


def _finding(rank: int, slow: bool, step: int, recent: Sequence[Observation], members: Sequence[int]) -> Finding:
    peers = tuple(other for other in members if other != rank)
    own, usual, whole = (statistics.median(getattr(look, name) for look in recent) for name in _SECONDS)
    return Finding(rank, slow, step, own, usual if math.isfinite(usual) else own, whole, peers)


_SECONDS: Final = ("busy_s", "usual_s", "step_s")


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
