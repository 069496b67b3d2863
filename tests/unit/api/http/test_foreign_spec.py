"""Specs of other tools are recognised, and their part of the page on how to move is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardyard.api.http.foreign_spec import TOOLS, refusal

PAGE = (Path(__file__).parents[4] / "docs" / "how-to" / "move.md").read_text()
#: The specs of other tools on the page, by the comment in their first line.
ON_PAGE = {
    name: yaml.safe_load(body)
    for name, body in re.findall(r"^```yaml\n# ([^\n]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if name != "Shardyard"
}


def name_of(document: Any) -> str | None:
    found = refusal(document)
    named = None if found is None else re.match(r"This is a spec of ([\w ]+), which has ", found.message)
    return None if named is None else named[1]


def test_the_specs_on_the_page_are_recognised() -> None:
    assert {name: name_of(document) for name, document in ON_PAGE.items()} == {
        name: name for name in ("SkyPilot", "dstack", "Determined")
    }


def test_the_page_has_a_part_for_each_tool() -> None:
    anchors = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)}
    assert {tool.anchor for tool in TOOLS} <= anchors


@pytest.mark.parametrize(
    ("document", "name", "field"),
    [
        ({"run": "python train.py"}, "SkyPilot", "run"),
        ({"resources": {"accelerators": "H100:8"}}, "SkyPilot", "resources.accelerators"),
        ({"type": "dev-environment", "ide": "vscode"}, "dstack", "type"),
        ({"entrypoint": "x", "resources": {"slots_per_trial": 2}}, "Determined", "resources.slots_per_trial"),
        ({"entrypoint": "python a.py", "runtime_env": {}}, "a Ray job", "entrypoint"),
        ({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {}}, "a Ray job", "kind"),
    ],
)
def test_a_spec_is_recognised_by_its_keys(document: dict[str, Any], name: str, field: str) -> None:
    found = refusal(document)
    assert found is not None and found.field == field and name_of(document) == name
    assert "docs/how-to/move.md#from-" in (found.remedy or "")


@pytest.mark.parametrize(
    "document",
    [
        None,
        ["run"],
        {},
        {"name": "mine", "run": None},
        {"name": "mine", "type": "train"},
        {"name": "mine", "resources": "run"},
        {"name": "mine", "ranks": 2, "code": {"dir": "."}, "setup": "make"},
        {"name": "mine", "command": ["x"], "num_nodes": 2},
        {"name": "mine", "train": {}, "run": "x"},
    ],
)
def test_other_documents_are_not(document: Any) -> None:
    assert refusal(document) is None
