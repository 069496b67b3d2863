from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any

import pytest

from shardyard.api.http.stream_schema import stream_components
from shardyard.workers.messages.event import KINDS
from shardyard.workers.messages.event_type import Event

DESCRIBED = stream_components()
#: Events that have a component of their own.
EVENTS = [event_type for event_type in KINDS.values() if event_type.__name__ in DESCRIBED]


@pytest.mark.parametrize("event_type", EVENTS, ids=lambda event_type: event_type.kind)
def test_only_a_field_without_a_default_is_always_sent(event_type: type[Event]) -> None:
    always = {one.name for one in fields(event_type) if one.default is one.default_factory is MISSING}
    assert set(DESCRIBED[event_type.__name__]["required"]) == always | {"ts"}


def test_no_field_of_an_event_has_a_default_by_which_a_generated_type_would_take_it_for_sent() -> None:
    found = [name for name, schema in DESCRIBED.items() if any("default" in one for one in properties(schema))]
    assert EVENTS and found == []


def test_a_field_that_may_be_left_out_says_when() -> None:
    incident, artifact = (DESCRIBED[name]["properties"] for name in ("IncidentEvent", "Artifact"))
    assert incident["rank"]["description"] == "The rank to blame. Left out if null."
    assert incident["log"]["description"] == "The rank's last log lines. Left out if []."
    assert incident["cause"]["description"] == "Code of the cause."
    assert artifact["type"]["description"].endswith('Left out if "file".')


def properties(schema: dict[str, Any]) -> Collection[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = schema.get("properties", {})
    return found.values()
