"""A trace's summary (time by category per rank, the slowest rank) and its spans, as many as fit into one response.

A step starts when its first rank starts it, and times within the step count from there. A rank's compute time is its time without waits for
other ranks.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from statistics import fmean, median
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.trace_request import TRACED_RANKS, WAITS
from ..errors import TraceNotFound
from ..schemas.trace import IdealRow, RankSpans, SpanRow, Trace, TracedRank, TracedStep, TraceSpans, TraceSummary
from ..store import attempts
from ..store import traces as rows
from ..store.engine import Store
from ..store.packing.trace_spans import CATEGORIES, OF_ACTION, Body, Ideal, Span, body_of
from ..store.tables import traces
from .orders import find

#: Traces that a job keeps.
KEPT: Final = 10
#: Bytes of all spans in one response, as JSON.
ROOM: Final = 260_000
_LEAST_BYTES: Final = 16  # of a span's row

_CATEGORY: Final = {name: index for index, name in enumerate(CATEGORIES)}


async def find_trace(tx: AsyncConnection, job: str, trace: str) -> tuple[Trace, RowMapping]:
    """A trace of a job (id or name), and the job. Raises JobNotFound, TraceNotFound."""
    found, row = await find(tx, "trace", traces, job, trace)
    if row is None:
        remedy = f"A job keeps its newest {KEPT}; list them with: shardyard trace JOB --list"
        raise TraceNotFound(f"{found['id']} has no trace {trace[:80]!r}.", field="trace", remedy=remedy)
    return await trace_record(tx, found, row), found


async def trace_record(tx: AsyncConnection, job: RowMapping, row: RowMapping) -> Trace:
    """A trace's row, with the number of parts that its ranks have reported."""
    parts = await rows.count(tx, row["job_id"], row["id"])
    ranks = attempts.world_size(await attempts.get(tx, row["job_id"], row["attempt"]), job)
    return Trace(
        id=row["id"],
        job=row["job_id"],
        attempt=row["attempt"],
        steps=row["steps"],
        state=row["state"],
        message=row["message"],
        first_step=row["first_step"],
        last_step=row["last_step"],
        parts=parts,
        parts_wanted=max(parts, row["steps"] * min(ranks, TRACED_RANKS)),
        actor=row["actor"],
        asked_at=row["asked_at"],
        settled_at=row["settled_at"],
    )


async def summary(store: Store, job: str, trace: str, step: int | None = None) -> TraceSummary:
    """The summary of all steps, or of one. Raises JobNotFound, TraceNotFound."""
    async with store.read() as tx:
        found, row = await find_trace(tx, job, trace)
        heads = await rows.heads(tx, found.job, found.id)
    known = _by_step(heads)
    by_step = {number: _ranks(parts, row) for number, parts in known.items()}
    steps = [_step(number, parts, by_step[number]) for number, parts in known.items()]
    if step is not None:
        _check_step(trace, step, by_step)
    shown = by_step[step] if step is not None else _means(by_step.values())
    return TraceSummary(trace=found, steps=steps, step=step, ranks=shown, **_slowest(shown), **_bubbles(shown))


def _by_step(heads: Sequence[RowMapping]) -> dict[int, list[RowMapping]]:
    return {step: list(parts) for step, parts in groupby(heads, key=itemgetter("step"))}


def _check_step(trace: str, step: int, known: Collection[int]) -> None:
    if step not in known:
        steps = ", ".join(map(str, known)) or "none yet"
        raise TraceNotFound(f"{trace} has no step {step}.", field="step", remedy=f"Its steps: {steps}.")


def _ranks(parts: Sequence[RowMapping], job: RowMapping) -> list[TracedRank]:
    replicas = _replicas(parts, job)
    return [_rank(part, replicas) for part in parts]


def _replicas(parts: Sequence[RowMapping], job: RowMapping) -> int:
    """The number of pipelines. The pipeline axis is the outermost, so rank % this is the pipeline's number.

    A pipeline has as many ranks as the job's layout says, unless the parts are of an earlier layout: then as the traced places say.
    `job` also has the world size for parts of versions that did not store theirs.
    """
    places: dict[int, int] = {part["rank"]: place for part in parts if (place := part["head"]["place"]) is not None}
    world_size: int = next((size for part in parts if (size := part["head"].get("world_size"))), job["world_size"])
    if not places:
        return world_size
    degree: int = job["spec"].get("train", {}).get("layout", {}).get("pipeline", 1)
    replicas, rest = divmod(world_size, degree)
    if not rest and all(rank // replicas == place for rank, place in places.items()):
        return replicas
    return max(1, world_size // (max(places.values()) + 1))


def _rank(part: RowMapping, replicas: int) -> TracedRank:
    head = part["head"]
    waited = sum(seconds for category, seconds in head["sums"].items() if category in WAITS)
    return TracedRank(
        rank=part["rank"],
        pipeline=None if head["place"] is None else part["rank"] % replicas,
        place=head["place"],
        seconds=_short(part["seconds"]),
        error_s=_short(head["error_s"]),
        sums={category: _short(seconds) for category, seconds in head["sums"].items()},
        busy_s=_short(part["seconds"] - waited),
        wait_s=_short(waited),
        bubble_measured=head["bubble_measured"],
        bubble_simulated=head["bubble_simulated"],
        dropped=head["dropped"],
    )


def _short(seconds: float) -> float:
    return round(seconds, 6)


def _step(step: int, parts: Sequence[RowMapping], ranks: Sequence[TracedRank]) -> TracedStep:
    longest = max(rank.seconds for rank in ranks)
    began = min(part["began"] for part in parts)
    return TracedStep(step=step, began=began, seconds=longest, ranks=len(ranks), **_slowest(ranks), **_bubbles(ranks))


def _slowest(ranks: Sequence[TracedRank]) -> dict[str, Any]:
    """The rank with the most compute time, and by how many seconds that is more than the others' median."""
    if len(ranks) < 2:
        return {"slowest_rank": None, "slower_by_s": None}
    slowest = max(ranks, key=attrgetter("busy_s"))
    others = median(rank.busy_s for rank in ranks if rank is not slowest)
    return {"slowest_rank": slowest.rank, "slower_by_s": _short(slowest.busy_s - others)}


def _bubbles(ranks: Sequence[TracedRank]) -> dict[str, Any]:
    kinds = ("bubble_measured", "bubble_simulated")
    return {kind: _mean(getattr(rank, kind) for rank in ranks) for kind in kinds}


def _means(steps: Iterable[Sequence[TracedRank]]) -> list[TracedRank]:
    """Each rank's mean over all steps that it reported."""
    traced = sorted((rank for ranks in steps for rank in ranks), key=attrgetter("rank"))
    return [_over_steps(list(same)) for _, same in groupby(traced, key=attrgetter("rank"))]


def _over_steps(steps: Sequence[TracedRank]) -> TracedRank:
    def mean(value: Callable[[TracedRank], float]) -> float:
        return _short(fmean(map(value, steps)))

    sums = {name: _short(fmean(rank.sums.get(name, 0.0) for rank in steps)) for name in CATEGORIES}
    return TracedRank(
        rank=steps[0].rank,
        pipeline=steps[0].pipeline,
        place=steps[0].place,
        seconds=mean(attrgetter("seconds")),
        error_s=max(rank.error_s for rank in steps),
        sums={name: seconds for name, seconds in sums.items() if seconds},
        busy_s=mean(attrgetter("busy_s")),
        wait_s=mean(attrgetter("wait_s")),
        bubble_measured=_mean(rank.bubble_measured for rank in steps),
        bubble_simulated=_mean(rank.bubble_simulated for rank in steps),
        dropped=sum(rank.dropped for rank in steps),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 4) if known else None


@dataclass(frozen=True)
class Window:
    """The requested part of a step, in µs after its start; None: to its end."""

    from_us: int = 0
    to_us: int | None = None

    def shows(self, start: float, length: float) -> bool:
        return start + length >= self.from_us and (self.to_us is None or start <= self.to_us)


async def spans(
    store: Store,
    job: str,
    trace: str,
    step: int | None = None,
    ranks: Collection[int] | None = None,
    window: Window = Window(),
) -> TraceSpans:
    """The spans of one step (None: the first) within a window. Raises JobNotFound, TraceNotFound."""
    async with store.read() as tx:
        found, row = await find_trace(tx, job, trace)
        heads = await rows.heads(tx, found.job, found.id)
        known = _by_step(heads)
        step = next(iter(known), 0) if step is None else step
        _check_step(trace, step, known)
        parts = await rows.of_step(tx, found.job, found.id, step, ranks)
    whole = _step(step, known[step], _ranks(known[step], row))
    replicas = _replicas(known[step], row)
    return await asyncio.to_thread(_spans, found.id, whole, parts, replicas, window)


@dataclass(frozen=True)
class _Item:
    """A span or an ideal action of a response."""

    part: int
    ideal: bool
    start: int
    length: int
    name: str
    rest: tuple[int | None, ...]  # lane, category, micro-batch and stage; an ideal action has no lane


def _spans(trace: str, step: TracedStep, parts: Sequence[RowMapping], replicas: int, window: Window) -> TraceSpans:
    bodies = [body_of(part["body"]) for part in parts]
    begins = [round((part["began"] - step.began) * 1e6) for part in parts]
    shown = [_shown(body, began, window) for body, began in zip(bodies, begins, strict=True)]
    kept = _fitting(_longest(shown, begins, ROOM // _LEAST_BYTES), ROOM)
    names = {name: index for index, name in enumerate(dict.fromkeys(item.name for item in kept if not item.ideal))}
    made = []
    for at, (part, body) in enumerate(zip(parts, bodies, strict=True)):
        mine = [item for item in kept if item.part == at]
        missing = len(shown[at][0]) + len(shown[at][1]) - len(mine)
        made.append(_rank_spans(part, body, begins[at], replicas, mine, names, missing))
    length = max((rank.began_us + rank.length_us for rank in made), default=0)
    return TraceSpans(
        trace=trace,
        step=step.step,
        began=step.began,
        length_us=length,
        categories=list(CATEGORIES),
        names=list(names),
        ranks=made,
        dropped=sum(rank.dropped for rank in made),
        unrecorded=sum(rank.unrecorded for rank in made),
    )


def _shown(body: Body, began: int, window: Window) -> tuple[list[Span], list[Ideal]]:
    """A rank's spans and ideal actions within the window. In both, the fourth element is the start, the fifth the length."""
    return (
        [span for span in body.spans if window.shows(span[3] + began, span[4])],
        [action for action in body.ideal if window.shows(action[3] + began, action[4])],
    )


def _longest(shown: Sequence[tuple[list[Span], list[Ideal]]], begins: Sequence[int], most: int) -> list[_Item]:
    """The candidates that can fit at all, longest first; a gang reports hundreds of thousands of spans."""
    lengths = [row[4] for both in shown for kind in both for row in kind]
    least = sorted(lengths)[-most] if len(lengths) > most else 0.0
    found: list[_Item] = []
    for at, (spans, ideal) in enumerate(shown):
        for lane, category, name, start, length, microbatch, stage in spans:
            if length >= least:
                place = (lane, _CATEGORY[category], microbatch, stage)
                found.append(_Item(at, False, round(start) + begins[at], round(length), name, place))
        for kind, planned, number, start, length in ideal:
            if length >= least:
                where = (_CATEGORY[OF_ACTION[kind]], planned, number)
                found.append(_Item(at, True, round(start) + begins[at], round(length), "", where))
    return sorted(found, key=attrgetter("length"), reverse=True)


def _fitting(longest: Iterable[_Item], room: int) -> list[_Item]:
    """As many of the first as fit into the given bytes of JSON, sorted by start; a nested span follows the span around it."""
    kept: list[_Item] = []
    names: set[str] = set()
    for item in longest:
        room -= len(json.dumps((*item.rest, item.start, item.length, len(names)), separators=(",", ":"))) + 1
        if item.name not in names:
            names.add(item.name)
            room -= len(json.dumps(item.name)) + 1
        if room < 0:
            break
        kept.append(item)
    return sorted(kept, key=lambda item: (item.start, -item.length))


def _rank_spans(
    part: RowMapping, body: Body, began: int, replicas: int, items: Sequence[_Item], names: dict[str, int], missing: int
) -> RankSpans:
    place = part["head"]["place"]
    return RankSpans.model_construct(  # up to 16,000 rows that this file made
        rank=part["rank"],
        pipeline=None if place is None else part["rank"] % replicas,
        place=place,
        began_us=began,
        length_us=round(part["seconds"] * 1e6),
        error_us=round(part["head"]["error_s"] * 1e6),
        lanes=body.lanes,
        spans=[_span_row(one, names) for one in items if not one.ideal],
        ideal=[_ideal_row(one) for one in items if one.ideal],
        dropped=missing,
        unrecorded=part["head"]["dropped"],
    )


def _span_row(item: _Item, names: dict[str, int]) -> SpanRow:
    lane, category, microbatch, stage = item.rest
    assert lane is not None and category is not None
    return (lane, category, names[item.name], item.start, item.length, microbatch, stage)


def _ideal_row(item: _Item) -> IdealRow:
    category, stage, microbatch = (part or 0 for part in item.rest)
    return (category, stage, microbatch, item.start, item.length)
