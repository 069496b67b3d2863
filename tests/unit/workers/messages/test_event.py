"""Every kind of event has one type."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from shardyard.workers.messages.event import (
    GANG_KINDS,
    KINDS,
    READABLE,
    VERSION,
    BadEvent,
    EvalEvent,
    from_json,
    json_schema,
    to_json,
)

DATA: Final = Path(__file__).parents[3] / "data" / "events"
#: What a schema says for people.
WORDS: Final = ("title", "description")


def test_a_kind_is_read_as_its_type() -> None:
    event = from_json("eval", {"step": 1, "loss": 2.0, "unigram_loss": 3.0, "tokens": 8})
    assert event == EvalEvent(step=1, loss=2.0, unigram_loss=3.0, tokens=8)


@pytest.mark.parametrize(
    ("kind", "data", "complaint"),
    [
        ("mood", {}, "There is no event 'mood'"),
        ("step", {"loss": 1.0}, "field 'step': Field required"),
        ("eval", {"step": 1, "loss": "low", "unigram_loss": 1.0, "tokens": 1}, "field 'loss': Input should be"),
        ("probe", {"step": 1, "traffic": {"data": {"send": {"calls": 1}}}}, "field 'traffic.data.send.elements'"),
        ("log", [1], "field 'data'"),
    ],
)
def test_what_is_no_event_is_refused_with_its_field(kind: str, data: object, complaint: str) -> None:
    with pytest.raises(BadEvent, match=complaint):
        from_json(kind, data)  # type: ignore[arg-type]


def batches(version: int) -> list[dict[str, Any]]:
    """Of each kind that this version added or changed one, as a gang sends it."""
    return [json.loads(line) for line in (DATA / f"v{version}.jsonl").read_text().splitlines()]


BATCHES = [batch for version in sorted(READABLE) for batch in batches(version)]


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch["events"][0]["kind"])
def test_what_a_gang_of_any_readable_version_sends_is_read(batch: dict[str, Any]) -> None:
    """One line per kind, as a gang sends it. Lines are never changed; a new version gets a file of its own."""
    (sent,) = batch["events"]
    event = from_json(sent["kind"], sent["data"], GANG_KINDS)
    assert to_json(event) == sent["data"]


def test_every_kind_that_a_gang_sends_has_an_example() -> None:
    assert all(batch["version"] == version for version in READABLE for batch in batches(version))
    assert max(READABLE) == VERSION
    assert {batch["events"][0]["kind"] for batch in BATCHES} == set(GANG_KINDS)


def test_the_schema_changes_only_with_the_version() -> None:
    """The committed file is written by `python tests/unit/workers/messages/test_event.py`."""
    committed = json.loads((DATA / "schema.json").read_text())
    assert schema() == committed, "raise VERSION and add a file: a gang and a service of different code must notice"


def schema() -> dict[str, Any]:
    """The JSON schema of every kind, with the version. Descriptions may be reworded without a new version."""
    described = {kind: json_schema(event) for kind, event in KINDS.items()}
    return {"version": VERSION, "kinds": without_words(described)}


def without_words(value: Any) -> Any:
    """Keys of objects that are no JSON schema keywords, such as names of fields, are kept."""
    if isinstance(value, list):
        return [without_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: without_words(one) for name, one in value.items() if not isinstance(one, str) or name not in WORDS}


if __name__ == "__main__":
    (DATA / "schema.json").write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n")
