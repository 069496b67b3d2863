"""What a job's stream sends, for the API's description: one component per kind of event, made from the types of events."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ...workers.messages.event import KINDS, LogEvent, RankMetricsEvent, StepEvent, TraceEvent, json_schema

Schema = dict[str, Any]

_REF: Final = "#/components/schemas/"
#: Kinds that are streamed from a table of their own, as the API's own models have them.
_MODELS: Final[Mapping[str, str]] = {
    StepEvent.kind: "Step",
    LogEvent.kind: "LogLine",
    RankMetricsEvent.kind: "RankMetrics",
}
#: The last event of a stream. Nothing but an empty object matches its schema, so that the union has one match for it.
_END: Final[Schema] = {
    "type": "object",
    "description": "Ends the stream: the job has ended, and all of its events were sent. Without it the stream has broken off.",
    "additionalProperties": False,
}
_TS: Final = {"type": "number", "description": "When it happened, in unix seconds."}


def stream_components() -> dict[str, Schema]:
    """Schemas by name: one for each streamed kind that has no model, and `JobEvents`, which maps each kind to its schema."""
    found: dict[str, Schema] = {"EndEvent": _END}
    for kind, event_type in KINDS.items():
        if kind not in _MODELS and kind != TraceEvent.kind:
            schema = json_schema(event_type, _REF + "{model}")
            found |= {name: _as_sent(one) for name, one in schema.pop("$defs", {}).items()}
            schema = _as_sent(schema)
            schema["properties"] = {**schema["properties"], "ts": _TS}
            schema["required"] = [*schema.get("required", []), "ts"]
            found[event_type.__name__] = schema
    names = {kind: {"$ref": _REF + name} for kind, name in _names().items()}
    about = "The data of each kind of event in a job's stream, by the name of the event."
    found["JobEvents"] = {"type": "object", "description": about, "properties": names, "required": sorted(names)}
    return found


def stream_union() -> Schema:
    """Any event's data. The stream's `event` field names the kind."""
    return {"oneOf": [{"$ref": _REF + name} for name in _names().values()]}


def streamed_kinds() -> list[str]:
    """The kinds of events in a stream."""
    return sorted(_names())


def _as_sent(schema: Schema) -> Schema:
    """An event omits fields that equal their default. Without its default such a field is optional in generated types, as it must be."""
    if "properties" not in schema:
        return schema
    return {**schema, "properties": {name: _field(one) for name, one in schema["properties"].items()}}


def _field(schema: Schema) -> Schema:
    if "default" not in schema:
        return schema
    kept = {key: value for key, value in schema.items() if key != "default"}
    return {
        **kept,
        "description": f"{schema.get('description', '')} Left out if {json.dumps(schema['default'])}.".lstrip(),
    }


def _names() -> dict[str, str]:
    """Kind → name of its component, with `end`, which only a stream has."""
    streamed = {kind: event_type.__name__ for kind, event_type in KINDS.items() if kind != TraceEvent.kind}
    return {**streamed, **_MODELS, "end": "EndEvent"}
