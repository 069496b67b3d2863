"""The description from which the dashboard's types are generated is the one that the API serves."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from harness.patience import PATIENCE_S

from shardyard.workers.messages.event import KINDS


def test_it_is_printed_without_a_database_or_a_cluster() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "shardyard.api.cli.commands.openapi"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    document = json.loads(printed.stdout)
    assert document["paths"]["/v1/jobs"]["post"]["operationId"] == "submitJob"
    schemas = document["components"]["schemas"]
    assert schemas["JobSpec"]["properties"].keys() >= {"name", "train"}
    kinds = schemas["JobEvents"]["properties"]
    assert set(kinds) == set(KINDS) - {"trace"}
    named = {kind: ref["$ref"].rpartition("/")[2] for kind, ref in kinds.items()}
    assert (named["incident"], named["step"]) == ("IncidentEvent", "Step")
    assert all(name in schemas for name in named.values())
    assert schemas["IncidentEvent"]["properties"].keys() >= {"cause", "stacks", "ts"}
    stream = document["paths"]["/v1/jobs/{job}/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    assert [one["$ref"] for one in stream["schema"]["oneOf"]] == [ref["$ref"] for ref in kinds.values()]
    assert set(refs(document)) <= {f"#/components/schemas/{name}" for name in schemas}


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
