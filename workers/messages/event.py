"""One frozen type per kind of event. Types are the only description of events: docs, API schema and checks are made from them.

A gang sends the kinds in `GANG_KINDS`; the service adds those in `SERVICE_KINDS`. `VERSION` is the version of their JSON: a change of a
kind or a field raises it. A field that equals its default is left out of the JSON. Imports neither torch nor Ray.
"""

from collections.abc import Mapping
from typing import Any, Final

from .event_type import BadEvent, Event, json_schema, read, sanitize, to_json
from .incident_events import (
    CordonEvent,
    ExecEvent,
    FaultEvent,
    IncidentEvent,
    ProfileEvent,
    RepairEvent,
    ReshardEvent,
    TraceEvent,
    TraceFinishedEvent,
)
from .training_events import (
    ArtifactsEvent,
    CheckpointEvent,
    EvalEvent,
    ExportEvent,
    FilesEvent,
    LogEvent,
    MetricsEvent,
    PlanEvent,
    PreflightEvent,
    ProbeEvent,
    RankMetricsEvent,
    StateEvent,
    StepEvent,
    StepNumbers,
    SummaryEvent,
    SystemEvent,
)

__all__ = [
    "GANG_KINDS",
    "KINDS",
    "READABLE",
    "SERVICE_KINDS",
    "VERSION",
    "ArtifactsEvent",
    "BadEvent",
    "CheckpointEvent",
    "CordonEvent",
    "EvalEvent",
    "Event",
    "ExecEvent",
    "ExportEvent",
    "FaultEvent",
    "FilesEvent",
    "IncidentEvent",
    "LogEvent",
    "MetricsEvent",
    "PlanEvent",
    "PreflightEvent",
    "ProbeEvent",
    "ProfileEvent",
    "RankMetricsEvent",
    "RepairEvent",
    "ReshardEvent",
    "StateEvent",
    "StepEvent",
    "StepNumbers",
    "SummaryEvent",
    "SystemEvent",
    "TraceEvent",
    "TraceFinishedEvent",
    "from_json",
    "json_schema",
    "read",
    "sanitize",
    "to_json",
]

#: Version of the JSON of all events. Version 2 adds `metrics`, version 3 `system`, `artifacts`, `files`, `profile` and `exec`, version 4
#: `preflight`. In version 4 `unigram_loss` may be null. Version 5 adds a plan's `capability`, version 6 the `restarts` of `metrics`.
VERSION: Final = 6
#: Versions that this one reads: every kind of theirs is one of this version.
READABLE: Final = frozenset({1, 2, 3, 4, 5, 6})

_FROM_GANG: Final = (
    StateEvent,
    PreflightEvent,
    PlanEvent,
    StepEvent,
    RankMetricsEvent,
    ProbeEvent,
    EvalEvent,
    CheckpointEvent,
    ExportEvent,
    FilesEvent,
    LogEvent,
    MetricsEvent,
    SystemEvent,
    ArtifactsEvent,
    IncidentEvent,
    RepairEvent,
    FaultEvent,
    ProfileEvent,
    ExecEvent,
    TraceEvent,
    TraceFinishedEvent,
    SummaryEvent,
)
#: Kinds that a gang sends to the dispatcher.
GANG_KINDS: Final[Mapping[str, type[Event]]] = {one.kind: one for one in _FROM_GANG}
#: Kinds that the service itself adds.
SERVICE_KINDS: Final[Mapping[str, type[Event]]] = {one.kind: one for one in (ReshardEvent, CordonEvent)}
#: Every kind of a job's events.
KINDS: Final[Mapping[str, type[Event]]] = {**GANG_KINDS, **SERVICE_KINDS}


def from_json(kind: str, data: Mapping[str, Any], kinds: Mapping[str, type[Event]] = KINDS) -> Event:
    """The event of these data. Unknown fields are ignored.

    Raises:
        BadEvent: unknown kind, missing field, or field of another type.
    """
    if kind not in kinds:
        raise BadEvent(f"There is no event {kind[:32]!r}; the kinds are {', '.join(sorted(kinds))}.")
    return read(kinds[kind], data)
