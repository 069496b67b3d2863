"""The description from which the dashboard's types are generated is the one that the API serves."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.event import KINDS


@pytest.fixture(scope="module")
def document() -> Any:
    """The description as it is printed, without a database or a cluster."""
    printed = subprocess.run(
        [sys.executable, "-m", "shardyard.api.cli.commands.openapi"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return json.loads(printed.stdout)


def test_it_is_printed_without_a_database_or_a_cluster(document: Any) -> None:
    assert document["paths"]["/v1/jobs"]["post"]["operationId"] == "submitJob"
    schemas = document["components"]["schemas"]
    assert schemas["JobSpec"]["properties"].keys() >= {"name", "train"}
    kinds = schemas["JobEvents"]["properties"]
    assert set(kinds) == set(KINDS) - {"trace"} | {"end"}
    named = {kind: ref["$ref"].rpartition("/")[2] for kind, ref in kinds.items()}
    assert (named["incident"], named["step"]) == ("IncidentEvent", "Step")
    assert all(name in schemas for name in named.values())
    assert schemas["IncidentEvent"]["properties"].keys() >= {"cause", "stacks", "ts"}
    stream = sent(document)["content"]["text/event-stream"]
    assert [one["$ref"] for one in stream["schema"]["oneOf"]] == [ref["$ref"] for ref in kinds.values()]
    assert set(refs(document)) <= {f"#/components/schemas/{name}" for name in schemas}


def test_the_end_of_a_stream_is_described(document: Any) -> None:
    """Its data is an empty object, which is the data of no other event."""
    assert "`end`" in sent(document)["description"]
    schemas = document["components"]["schemas"]
    assert schemas["JobEvents"]["properties"]["end"] == {"$ref": "#/components/schemas/EndEvent"}
    union = {**sent(document)["content"]["text/event-stream"]["schema"], "components": document["components"]}
    check = jsonschema.Draft202012Validator(union)
    assert check.is_valid({})
    assert not jsonschema.Draft202012Validator(schemas["EndEvent"]).is_valid({"ts": 1.0})


def sent(document: Any) -> Any:
    """What is described of a job's stream."""
    return document["paths"]["/v1/jobs/{job}/events"]["get"]["responses"]["200"]


def refs(value: Any) -> Iterator[str]:
    """Every reference in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from refs(one)
    elif isinstance(value, list):
        for one in value:
            yield from refs(one)
