"""Dataclasses survive JSON, and JSON that does not fit their type hints is refused."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from shardyard.workers.messages.json_codec import dumps, loads, schema


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass
class Shape:
    kind: Literal["line", "area"]
    points: tuple[Point, ...] = ()
    names: dict[int, list[str]] = field(default_factory=dict)
    middle: Point | None = None
    span: tuple[int, int] = (0, 0)
    closed: bool = False
    rest: dict[str, Any] = field(default_factory=dict)


FULL = Shape("area", (Point(1.5, 2.0), Point(3.0)), {7: ["a", "é\ud800"]}, Point(0.0), (1, 2), True, {"any": [None, 1]})


def test_a_value_is_read_as_it_was_written() -> None:
    assert loads(Shape, dumps(FULL)) == FULL


def test_defaults_are_left_out() -> None:
    assert dumps(Shape("line")) == b'{"kind":"line"}'
    assert dumps(Shape("line", (Point(1.0),))) == b'{"kind":"line","points":[{"x":1.0}]}'
    assert loads(Shape, b'{"kind":"line"}') == Shape("line")


def test_a_whole_number_is_read_as_a_float() -> None:
    assert loads(Point, b'{"x":1}') == Point(1.0) and isinstance(loads(Point, b'{"x":1}').x, float)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"kind":"circle"}',
        b'{"kind":"line","colour":1}',
        b'{"kind":"line","points":[[1,2]]}',
        b'{"kind":"line","points":[{"y":1}]}',
        b'{"kind":"line","points":[{"x":"1"}]}',
        b'{"kind":"line","points":[{"x":true}]}',
        b'{"kind":"line","names":{"seven":[]}}',
        b'{"kind":"line","names":{"7":"a"}}',
        b'{"kind":"line","middle":7}',
        b'{"kind":"line","span":[1]}',
        b'{"kind":"line","closed":1}',
    ],
)
def test_what_does_not_fit_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        loads(Shape, data)


def test_other_objects_are_not_written() -> None:
    with pytest.raises(TypeError, match="set is no dataclass"):
        dumps(Shape("line", rest={"a": {1}}))


def test_the_schema_has_types_and_defaults_and_no_names_of_classes() -> None:
    found = schema(Shape)
    assert found["kind"] == {"type": ["line", "area"]}
    assert found["points"] == {"type": {"tuple": [schema(Point), "..."]}, "default": []}
    assert found["middle"] == {"type": {"union": [schema(Point), "NoneType"]}, "default": None}
    assert found["names"]["type"] == {"dict": ["int", {"list": ["str"]}]}
    assert schema(Point) == {"x": {"type": "float"}, "y": {"type": "float", "default": 0.0}}
