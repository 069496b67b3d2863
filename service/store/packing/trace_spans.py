"""What one rank tells of one traced step, as a row: the numbers of a summary beside a deflated body with every span.

Whatever is read out of a body later was checked here: categories are known ones, numbers are finite, texts are short.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping

#: What a rank's time goes into; of the training thread exclusive, so that they sum to the step.
CATEGORIES: Final = (
    "forward", "backward", "weight", "optimizer", "send", "receive", "collective", "data", "other",
)  # fmt: skip
#: Spans that are kept of one rank and step.
MOST_SPANS: Final = 4000

_KNOWN: Final = frozenset(CATEGORIES)
#: The categories of a simulated schedule's actions.
OF_ACTION: Final = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}
_TEXT: Final = 80
_LEVEL: Final = 3  # of deflate: two thirds of the best one's saving in a fifth of its time

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


def columns(told: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a `trace` event. Raises KeyError, TypeError, ValueError for what is none."""
    pipeline = told.get("pipeline") or {}
    spans = [_span(*span) for span in told["spans"][:MOST_SPANS]]
    beyond = len(told["spans"]) - len(spans)
    head = {
        "error_s": _finite(told.get("error_s", 0.0)),
        "sums": _sums(told["sums"]),
        "dropped": int(told.get("dropped", 0)) + beyond,
        "place": _whole(pipeline.get("place")),
        "bubble_measured": _share(pipeline.get("bubble_measured")),
        "bubble_simulated": _share(pipeline.get("bubble_simulated")),
    }
    body = {
        "lanes": [_text(lane) for lane in told.get("lanes", ())],
        "spans": spans,
        "ideal": [_ideal(*action) for action in pipeline.get("ideal", ())][:MOST_SPANS],
    }
    return {
        "step": _counted(told["step"], 2**53),
        "rank": _counted(told["rank"], 2**31),
        "began": _finite(told["began"]),
        "seconds": _finite(told["seconds"]),
        "head": head,
        "body": zlib.compress(json.dumps(body, separators=(",", ":")).encode(), _LEVEL),
    }


def body_of(stored: bytes) -> Body:
    """What `columns` deflated."""
    body = json.loads(zlib.decompress(stored))
    spans: list[Span] = [tuple(span) for span in body["spans"]]
    ideal: list[Ideal] = [tuple(action) for action in body["ideal"]]
    return Body(body["lanes"], spans, ideal)


def event_of(row: RowMapping | Mapping[str, Any]) -> dict[str, Any]:
    """What the rank told, from its row."""
    head, body = row["head"], body_of(row["body"])
    pipeline = {name: head[name] for name in ("place", "bubble_measured", "bubble_simulated") if head[name] is not None}
    return {
        **{name: row[name] for name in ("rank", "step", "began", "seconds")},
        **{name: head[name] for name in ("error_s", "sums", "dropped")},
        "lanes": body.lanes,
        "spans": body.spans,
        "pipeline": {**pipeline, "ideal": body.ideal} if pipeline else None,
    }


def _span(lane: Any, category: Any, name: Any, start: Any, length: Any, microbatch: Any, stage: Any) -> Sequence[Any]:
    times = (round(_finite(start), 1), round(max(0.0, _finite(length)), 1))
    return (int(lane), _known(category), _text(name), *times, _whole(microbatch), _whole(stage))


def _ideal(kind: Any, stage: Any, microbatch: Any, start: Any, length: Any) -> Sequence[Any]:
    if kind not in OF_ACTION:
        raise ValueError(f"{kind!r} is no action of a schedule")
    return (kind, int(stage), int(microbatch), round(_finite(start), 1), round(max(0.0, _finite(length)), 1))


def _sums(told: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by category; those of unknown ones are others."""
    sums = dict.fromkeys(CATEGORIES, 0.0)
    for category, seconds in dict(told).items():
        sums[_known(category)] += _finite(seconds)
    return {category: round(seconds, 7) for category, seconds in sums.items() if seconds}


def _text(value: Any) -> str:
    """Short, and without halves of surrogate pairs."""
    return str(value)[:_TEXT].encode("utf-8", "replace").decode()


def _counted(value: Any, limit: int) -> int:
    if not 0 <= int(value) < limit:
        raise ValueError(f"{value} is not from 0 to {limit}")
    return int(value)


def _known(category: Any) -> str:
    return category if category in _KNOWN else "other"


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no time")
    return number


def _share(value: Any) -> float | None:
    return None if value is None else _finite(value)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
