"""The plan that comes with a spec is small, bounded, and is taken off a document without a change of the rest."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.workers.planned_memory import PlannedMemory, without_plan

GOOD: dict[str, Any] = {"of": "0" * 64, "ranks": 2, "parameters": 10, "at_peak": {"parameters": 40, "logits": 8}}


def test_what_is_not_given_is_nothing() -> None:
    found = PlannedMemory.model_validate(GOOD, strict=True)
    assert found.host_bytes == 0 and found.at_peak.model_dump() == {
        **dict.fromkeys(("gradients", "optimizer", "activations", "buffers"), 0),
        **{"parameters": 40, "logits": 8},
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"of": "0" * 63},
        {"of": "x" * 64},
        {"ranks": 0},
        {"parameters": -1},
        {"at_peak": {"parameters": 2**50 + 1}},
        {"at_peak": {"activations": -1}},
        {"at_peak": {"secrets": 1}},
        {"notes": "an essay"},
    ],
    ids=str,
)
def test_anything_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PlannedMemory.model_validate({**GOOD, **wrong}, strict=True)


@pytest.mark.parametrize("document", [None, [], {"command": "true"}, {"train": 3}, {"train": {"steps": 1}}], ids=str)
def test_a_document_without_one_stays_as_it_is(document: Any) -> None:
    assert without_plan(document) is document


def test_it_is_taken_off_a_document() -> None:
    given = {"name": "a", "train": {"planned": GOOD, "steps": 1}}
    assert without_plan(given) == {"name": "a", "train": {"steps": 1}}
    assert given["train"] == {"planned": GOOD, "steps": 1}
