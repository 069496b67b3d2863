"""A run that continues from a checkpoint with other delays: another schedule, or another number of stages.

The textbook (`harness/textbook_delayed.py`) does both runs in one loop, of which the second begins with the versions in the checkpoint.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.ranks import train
from harness.textbook_delayed import Delays, NewestStands, Resumed, by_stage, of_all

from . import test_textbook as textbook

spec_of, one_thread = textbook.spec_of, textbook.one_thread

STEPS, AT = 9, 4
FLUSHED = {"pipeline": 4}
TWO_VERSIONS = {"pipeline": 4, "schedule": "2bw"}
BY_STAGE = {"pipeline": 4, "schedule": "pipedream"}
SYNCHRONISED = {**BY_STAGE, "vertical_sync": True}
#: Layouts before and after the checkpoint, and whether the second run needs older versions than a parameter has that has several.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "2bw-pipedream": (TWO_VERSIONS, BY_STAGE, True),
    "2bw-synchronised": (TWO_VERSIONS, SYNCHRONISED, True),
    "2bw-two-stages": (TWO_VERSIONS, {**TWO_VERSIONS, "pipeline": 2}, False),
    "2bw-1f1b": (TWO_VERSIONS, FLUSHED, False),
    "pipedream-1f1b": (BY_STAGE, FLUSHED, False),
    "pipedream-2bw": (BY_STAGE, TWO_VERSIONS, False),
    "pipedream-two-stages": (BY_STAGE, {**BY_STAGE, "pipeline": 2}, False),
    "two-stages-pipedream": ({**BY_STAGE, "pipeline": 2}, BY_STAGE, True),
    "pipedream-synchronised": (BY_STAGE, SYNCHRONISED, True),
    "synchronised-pipedream": (SYNCHRONISED, BY_STAGE, False),
    "1f1b-pipedream": (FLUSHED, BY_STAGE, False),
}


def delays(layout: dict[str, Any], run: dict[str, Any]) -> Delays:
    """Those of a run on `layout`."""
    if layout.get("schedule") != "pipedream":
        return of_all(1 if layout.get("schedule") == "2bw" else 0)
    if layout.get("vertical_sync"):
        return of_all(layout["pipeline"] - 1)
    (blocks,) = [data["stage_blocks"] for kind, data in run["events"] if kind == "plan"]
    return by_stage(blocks)


@pytest.fixture(scope="module")
def saved(root: Path, spec_of: Any) -> Callable[[dict[str, Any]], tuple[str, Delays]]:
    """`saved(layout)`: the checkpoint of step `AT` of a run on that layout, and its delays. Trained once."""
    known: dict[str, tuple[str, Delays]] = {}

    def run(layout: dict[str, Any]) -> tuple[str, Delays]:
        key = str(layout)
        if key not in known:
            spec = spec_of("llama", layout, steps=STEPS, checkpoint={"every": AT, "final": False})
            found = train(spec, root, f"before-{len(known)}")
            paths = [data["path"] for kind, data in found["events"] if kind == "checkpoint" and data["step"] == AT]
            known[key] = (paths[0], delays(layout, found))
        return known[key]

    return run


@pytest.mark.parametrize("name", CASES)
def test_equals_the_textbook_that_goes_on_with_other_delays(name: str, root: Path, spec_of: Any, saved: Any) -> None:
    before, after, lacks = CASES[name]
    path, first = saved(before)
    spec = spec_of("llama", after, steps=STEPS)
    run = train(spec, root, f"after-{name}", resume=path)
    found, then = textbook.recorded(run), delays(after, run)
    expected, wrong = (one(spec, AT, first, then).run().after(AT) for one in (Resumed, NewestStands))
    assert textbook.distance(found, expected) < textbook.BOUND
    assert (textbook.distance(found, wrong) > textbook.SHARP) == lacks
