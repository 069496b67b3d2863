"""One rank's report of one traced step, as a row: the numbers of a summary beside a deflated body with every span.

Everything that is read from a body later is checked here first: categories are known, numbers are finite, texts are short.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping

from ....workers.messages.event import TraceEvent
from ....workers.messages.incident_events import TracePipeline

#: The categories of a rank's time. Those of the training thread exclude each other, so that they sum to the step.
CATEGORIES: Final = (
    "forward", "backward", "weight", "optimizer", "send", "receive", "collective", "data", "other",
)  # fmt: skip
#: Maximum number of spans that are stored of one rank and step.
MOST_SPANS: Final = 4000

_KNOWN: Final = frozenset(CATEGORIES)
#: The categories of a simulated schedule's actions.
OF_ACTION: Final = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}
_TEXT: Final = 80
_LEVEL: Final = 3  # of deflate: two thirds of the best level's saving in a fifth of its time

#: (lane, category, name, start in µs after the rank's own begin, length in µs, micro-batch, stage)
Span = tuple[int, str, str, float, float, int | None, int | None]
#: (kind of action, stage, micro-batch, start in µs after the rank's own begin, length in µs)
Ideal = tuple[str, int, int, float, float]


@dataclass(frozen=True)
class Body:
    """Spans by lane, and this rank's row of the ideal schedule, which only pipelines have."""

    lanes: list[str]
    spans: list[Span]
    ideal: list[Ideal]


def columns(event: TraceEvent, world_size: int | None) -> dict[str, Any]:
    """The row of a traced step of a gang of `world_size` ranks.

    Raises ValueError for a number that is not finite or out of range, or an unknown action.
    """
    pipeline = event.pipeline or TracePipeline()
    spans = [_span(*span) for span in event.spans[:MOST_SPANS]]
    beyond = len(event.spans) - len(spans)
    head = {
        "error_s": _finite(event.error_s),
        "sums": _sums(event.sums),
        "dropped": event.dropped + beyond,
        "place": pipeline.place,
        "world_size": world_size,
        "bubble_measured": _share(pipeline.bubble_measured),
        "bubble_simulated": _share(pipeline.bubble_simulated),
    }
    body = {
        "lanes": [_text(lane) for lane in event.lanes],
        "spans": spans,
        "ideal": [_ideal(*action) for action in pipeline.ideal[:MOST_SPANS]],
    }
    return {
        "step": _counted(event.step, 2**53),
        "rank": _counted(event.rank, 2**31),
        "began": _finite(event.began),
        "seconds": _finite(event.seconds),
        "head": head,
        "body": zlib.compress(json.dumps(body, separators=(",", ":")).encode(), _LEVEL),
    }


def body_of(stored: bytes) -> Body:
    """The body that `columns` deflated."""
    body = json.loads(zlib.decompress(stored))
    spans: list[Span] = [tuple(span) for span in body["spans"]]
    ideal: list[Ideal] = [tuple(action) for action in body["ideal"]]
    return Body(body["lanes"], spans, ideal)


def event_of(row: RowMapping | Mapping[str, Any]) -> dict[str, Any]:
    """The `trace` event that the rank reported, from its row."""
    head, body = row["head"], body_of(row["body"])
    pipeline = {name: head[name] for name in ("place", "bubble_measured", "bubble_simulated") if head[name] is not None}
    return {
        **{name: row[name] for name in ("rank", "step", "began", "seconds")},
        **{name: head[name] for name in ("error_s", "sums", "dropped")},
        "lanes": body.lanes,
        "spans": body.spans,
        "pipeline": {**pipeline, "ideal": body.ideal} if pipeline else None,
    }


def _span(
    lane: int, category: str, name: str, start: float, length: float, microbatch: int | None, stage: int | None
) -> Sequence[Any]:
    times = (round(_finite(start), 1), round(max(0.0, _finite(length)), 1))
    return (lane, _known(category), _text(name), *times, microbatch, stage)


def _ideal(kind: str, stage: int, microbatch: int, start: float, length: float) -> Sequence[Any]:
    if kind not in OF_ACTION:
        raise ValueError(f"{kind!r} is not an action of a schedule")
    return (kind, stage, microbatch, round(_finite(start), 1), round(max(0.0, _finite(length)), 1))


def _sums(reported: Mapping[str, float]) -> dict[str, float]:
    """Seconds by category; unknown categories count as `other`."""
    sums = dict.fromkeys(CATEGORIES, 0.0)
    for category, seconds in reported.items():
        sums[_known(category)] += _finite(seconds)
    return {category: round(seconds, 7) for category, seconds in sums.items() if seconds}


def _text(value: str) -> str:
    """Shortened, and without lone surrogates."""
    return value[:_TEXT].encode("utf-8", "replace").decode()


def _counted(value: int, limit: int) -> int:
    if not 0 <= value < limit:
        raise ValueError(f"{value} is not from 0 to {limit}")
    return value


def _known(category: str) -> str:
    return category if category in _KNOWN else "other"


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a time")
    return number


def _share(value: float | None) -> float | None:
    return None if value is None else _finite(value)
