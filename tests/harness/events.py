"""Events in tests: what a test does not care about gets a neutral value, so that every event is a whole one."""

from dataclasses import MISSING, fields
from typing import Any, get_args, get_origin, get_type_hints

from shardyard.workers.messages.event import GANG_KINDS


def whole_event(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """`data` with a neutral value for each required field of a gang's event that it lacks; of an unknown kind as it is."""
    if kind not in GANG_KINDS:
        return data
    hints = get_type_hints(GANG_KINDS[kind], include_extras=False)
    required = [one.name for one in fields(GANG_KINDS[kind]) if one.default is MISSING]
    return {**{name: _neutral(hints[name]) for name in required}, **data}


def _neutral(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    made = get_origin(hint) or hint
    return {} if made not in (int, float, str, bool, tuple) else made()
