"""Searches of MLflow clients: which runs or logged models match, in which order, page by page.

A field that something does not have matches only IS NULL. It is last in any order, after values that are not a number, as in MLflow.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from .mlflow_fields import Json, invalid, read_page
from .mlflow_filter import Comparison, Field, Order

T = TypeVar("T")
_Test = Callable[[Any], bool]
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "IN": lambda found, texts: found in texts,
    "NOT IN": lambda found, texts: found not in texts,
}


@dataclass(frozen=True)
class Searched(Generic[T]):
    """Something to find, and what is compared of it."""

    item: T
    attributes: Mapping[str, float | str | None]
    metrics: Mapping[str, float]
    params: Mapping[str, str]
    tags: Mapping[str, str]

    def value(self, field: Field) -> float | str | None:
        """None if it has no such field."""
        match field.kind:
            case "attribute":
                return self.attributes[field.key]
            case "metric":
                return self.metrics.get(field.key)
            case "parameter":
                return self.params.get(field.key)
            case "tag":
                return self.tags.get(field.key)


def matching(items: Iterable[Searched[T]], comparisons: Sequence[Comparison]) -> list[Searched[T]]:
    """Those that all comparisons match."""
    tests = [(one.field, _test(one)) for one in comparisons]
    return [item for item in items if all(test(item.value(field)) for field, test in tests)]


def ordered(items: Sequence[Searched[T]], orders: Sequence[Order]) -> list[Searched[T]]:
    """By the first order, then by the next, then as they are. Raises MlflowError."""
    fields = [one.field for one in orders]
    for field in fields:
        if fields.count(field) > 1:
            raise invalid(f"order_by has {field.kind} {field.key!r} twice: leave one out")
    found = list(items)
    for order in reversed(orders):
        found = _ordered(found, order)
    return found


def _ordered(items: Sequence[Searched[T]], order: Order) -> list[Searched[T]]:
    with_value: list[tuple[Any, Searched[T]]] = []
    not_numbers: list[Searched[T]] = []
    without: list[Searched[T]] = []
    for item in items:
        value = item.value(order.field)
        if value is None:
            without.append(item)
        elif isinstance(value, float) and math.isnan(value):
            not_numbers.append(item)
        else:
            with_value.append((value, item))
    with_value.sort(key=lambda one: one[0], reverse=order.is_descending)
    return [*(item for _, item in with_value), *not_numbers, *without]


def paged(items: Sequence[Searched[T]], body: Json, most: int) -> tuple[list[T], Json]:
    """The requested page, and `next_page_token` if there is another one. Raises MlflowError."""
    start, size = read_page(body, most)
    end = start + size
    return [one.item for one in items[start:end]], {"next_page_token": str(end)} if end < len(items) else {}


def _test(comparison: Comparison) -> _Test:
    value, compared = comparison.value, _COMPARED.get(comparison.operator)
    if comparison.operator == "IS NULL":
        return lambda found: found is None
    if comparison.operator == "IS NOT NULL":
        return lambda found: found is not None
    if compared is not None:
        return lambda found: found is not None and compared(found, value)
    like = _like(str(value), re.IGNORECASE if comparison.operator == "ILIKE" else re.NOFLAG)
    return lambda found: found is not None and like(found)


def _like(pattern: str, flags: re.RegexFlag) -> Callable[[str], bool]:
    """The test of a LIKE, in which `%` is any text and `_` one character.

    Each part between two `%` has a fixed length and is searched for once, so a test takes at most as many steps as the text has
    characters times those of the pattern.
    """
    lengths = [len(part) for part in pattern.split("%")]
    first, *others = (
        re.compile("".join("." if one == "_" else re.escape(one) for one in part), flags | re.DOTALL)
        for part in pattern.split("%")
    )

    def matches(text: str) -> bool:
        begin = first.match(text)
        if begin is None or not others:
            return begin is not None and begin.end() == len(text)
        at = begin.end()
        for part in others[:-1]:
            found = part.search(text, at)
            if found is None:
                return False
            at = found.end()
        end = len(text) - lengths[-1]
        return end >= at and others[-1].fullmatch(text, end) is not None

    return matches
