"""Values that a program logs, in blocks: the same names at several steps, as one text that is cheap to pass on.

Needs only the standard library, of Python 3.8 or newer: programs use it, too.
"""

import base64
import json
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Maximum characters of a name.
MOST_NAME: Final = 200
#: Maximum number of names of a job.
MOST_NAMES: Final = 1000
#: Steps are below this.
MOST_STEP: Final = 2**53
#: How a line begins by which a program without this package logs: `{"shardyard": {"acc": 0.9}, "step": 3}`.
_PRINTED: Final = '{"shardyard"'


@dataclass(frozen=True)
class MetricBlock:
    """Values of several metrics at several steps, on one rank."""

    names: tuple[str, ...]
    """Names of the metrics."""
    steps: tuple[int, ...]
    """The steps."""
    values: str
    """For each step the value of each metric: little-endian float64 in base64."""


def packed(values: "array[float]") -> str:
    """The text of these values."""
    if sys.byteorder == "big":
        values = array("d", values)
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode("ascii")


def columns(block: MetricBlock) -> Iterator[tuple[str, list[tuple[int, float | None]]]]:
    """Each name with its pairs of step and value; None for one that is not finite. Raises ValueError if the sizes do not agree."""
    values = array("d")
    values.frombytes(base64.b64decode(block.values, validate=True))
    if sys.byteorder == "big":
        values.byteswap()
    if len(values) != len(block.names) * len(block.steps):
        raise ValueError(f"{len(values)} values are not {len(block.names)} at {len(block.steps)} steps")
    finite = math.isfinite
    for at, name in enumerate(block.names):
        mine = values[at :: len(block.names)]
        yield name, [(step, value if finite(value) else None) for step, value in zip(block.steps, mine, strict=True)]


def checked(message: Mapping[str, Any]) -> MetricBlock:
    """The block that a program sent as JSON. Raises ValueError, TypeError or KeyError for what is not one."""
    names, steps, values = tuple(message["names"]), tuple(message["steps"]), message["values"]
    for name in names:
        check_name(name)
    for step in steps:
        check_step(step)
    if not isinstance(values, str) or len(values) != 4 * (-(-8 * len(names) * len(steps) // 3)):
        raise ValueError("the values are not as many as names and steps say")
    return MetricBlock(names, steps, values)


def printed_blocks(lines: Iterable[str]) -> list[MetricBlock]:
    """The metrics in those lines that are JSON of the agreed form; each is a block."""
    found = []
    for line in lines:
        if not line.startswith(_PRINTED):
            continue
        try:
            record = json.loads(line)
            for name in record["shardyard"]:
                check_name(name)
            check_step(record["step"])
            values = array("d", [float(value) for value in record["shardyard"].values()])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # it stays a line of the log
        found.append(MetricBlock(tuple(record["shardyard"]), (record["step"],), packed(values)))
    return found


def check_name(name: Any) -> None:
    """Raise ValueError unless it can be the name of a metric."""
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise ValueError(f"{ascii(name)[:80]} is not a name of 1 to {MOST_NAME} printable characters")


def check_step(step: Any) -> None:
    """Raise ValueError unless it can be a step."""
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < MOST_STEP:
        raise ValueError(f"{ascii(step)[:80]} is not a whole number from 0 to {MOST_STEP - 1}")
