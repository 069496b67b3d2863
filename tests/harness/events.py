"""Events in tests: what a test does not care about gets a neutral value, so that every event is a whole one."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from shardyard.workers.messages.event import GANG_KINDS


def whole_event(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """`data` with a neutral value for each required field of a gang's event that it lacks; of an unknown kind as it is."""
    return {**_neutral(kind), **data} if kind in GANG_KINDS else data


@cache
def _neutral(kind: str) -> Mapping[str, Any]:
    hints = get_type_hints(GANG_KINDS[kind])
    return {one.name: _value(hints[one.name]) for one in fields(GANG_KINDS[kind]) if one.default is MISSING}


def _value(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    made = get_origin(hint) or hint
    return made() if made in (int, float, str, bool, tuple) else {}
