"""Values that a program logs, in blocks: the same names at several steps, as one text that is cheap to pass on.

Needs only the standard library, of Python 3.8 or newer: programs use it, too.
"""

import base64
import json
import math
import re
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
#: Restarts of ranks by their own launcher are counted up to this.
MOST_RESTARTS: Final = 4095
#: The key of a line by which a program without this package logs: `{"shardyard": {"acc": 0.9}, "step": 3}`. Also as Python prints it.
_KEY: Final = re.compile(r"""["']shardyard["']\s*:""")
#: Characters of a line that cannot be used, for the message about it.
_SHOWN: Final = 200


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


def printed_blocks(lines: Iterable[str]) -> tuple[list[MetricBlock], str | None]:
    """The metrics in those lines that are JSON of the agreed form, each a block; and why the first other line with its key is none."""
    found: list[MetricBlock] = []
    unusable: str | None = None
    for line in lines:
        if not line.startswith("{") or "shardyard" not in line or _KEY.search(line) is None:
            continue
        try:
            block = _printed(line)
        except ValueError as error:  # it stays a line of the log
            unusable = unusable or f"{error}: {line[:_SHOWN]}"
        else:
            found.extend([block] if block is not None else [])
    return found, unusable


def _printed(line: str) -> MetricBlock | None:
    """The metrics of one line; None if it has the key in a part only. Raises ValueError for values that cannot be used."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON on a line of at most 8,192 bytes") from None
    if "shardyard" not in record:
        return None
    values, numbers = record["shardyard"], array("d")
    if not isinstance(values, dict):
        raise ValueError("its shardyard is no object of names and numbers")
    if "step" not in record:
        raise ValueError("it has no step")
    check_step(record["step"])
    for name, value in values.items():
        check_name(name)
        try:
            numbers.append(float(value))
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"{name} is no number: {ascii(value)[:80]}") from None
    return MetricBlock(tuple(values), (record["step"],), packed(numbers))


def check_name(name: Any) -> None:
    """Raise ValueError unless it can be the name of a metric."""
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise ValueError(f"{ascii(name)[:80]} is not a name of 1 to {MOST_NAME} printable characters")


def check_step(step: Any) -> None:
    """Raise ValueError unless it can be a step."""
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < MOST_STEP:
        raise ValueError(f"{ascii(step)[:80]} is not a whole number from 0 to {MOST_STEP - 1}")
