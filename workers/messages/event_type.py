"""The base of all event types: reads, writes and describes them. Imports neither torch nor Ray."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError


class BadEvent(ValueError):
    """An event has an unknown kind, lacks a field, or has a field of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events."""

    kind: ClassVar[str]


E = TypeVar("E", bound=Event)


def to_json(event: Event) -> dict[str, Any]:
    """The event's data as strict JSON. A field that equals its default is left out; a number that is not finite becomes null."""
    data: dict[str, Any] = sanitize(adapter(type(event)).dump_python(event, mode="json", exclude_defaults=True))
    return data


def read(event_type: type[E], data: Mapping[str, Any]) -> E:
    """The event of this type. Unknown fields are ignored. Raises BadEvent for a missing field or one of another type."""
    try:
        event: E = adapter(event_type).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "data"
        raise BadEvent(f"Event {event_type.kind!r}, field {where!r}: {first['msg']}.") from error
    return event


def adapter(event_type: Any) -> TypeAdapter[Any]:
    """The pydantic adapter of one type of event. Made at first use, which takes milliseconds."""
    return _made(event_type)


@cache
def _made(event_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(event_type)


def json_schema(event_type: type[Event], ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """The schema of an event as it is sent, with its docstrings as descriptions.

    Apart from `adapter`, since pydantic takes six times as long for an adapter with docstrings: it parses their modules for each type.
    """
    # In a list, since a dataclass itself takes no configuration here.
    described = TypeAdapter(list[event_type], config=ConfigDict(use_attribute_docstrings=True))  # type: ignore[valid-type]
    found = described.json_schema(mode="serialization", ref_template=ref_template)["$defs"]
    own: dict[str, Any] = found.pop(event_type.__name__)
    return {**own, "$defs": found} if found else own


def sanitize(value: Any) -> Any:
    """The same value as strict JSON: tuples become lists, NaN and infinities None, and types without JSON text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(item) for item in value]
    return str(value)
