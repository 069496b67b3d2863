"""Findings at the value of a parameter name the parameter."""

from typing import Any

import pytest

from shardyard.api.errors import InvalidDocument
from shardyard.api.http.sweep_document import read_sweep
from shardyard.service.spec import CommandSpec

COMMAND = {"name": "mine", "command": ["python", "train.py", "--lr", "0.1"]}


def test_the_first_trial_has_values_of_its_own() -> None:
    request, first = read_sweep({**COMMAND, "sweep": {"parameters": {"command[3]": ["1", "2"]}, "search": "grid"}})
    assert isinstance(first, CommandSpec) and first.command == ["python", "train.py", "--lr", "1"]
    assert request.points == [{"command[3]": "1"}, {"command[3]": "2"}]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"ranks": [1, 0]}, "sweep.parameters.ranks"),
        ({"ranks": [0, 1]}, "sweep.parameters.ranks"),
        ({"rank": [1]}, "sweep.parameters.rank"),
        ({"ranks": {"min": 0, "max": 4}}, "sweep.parameters.ranks"),
    ],
)
def test_a_refused_value_names_its_parameter(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_sweep({**COMMAND, "sweep": {"parameters": parameters}})
    assert [one.field for one in refused.value.errors] == [field] and refused.value.errors[0].remedy


@pytest.mark.parametrize("document", [None, [], COMMAND, {**COMMAND, "sweeps": {}}])
def test_without_sweep_it_is_no_sweep(document: Any) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_sweep(document)
    assert refused.value.field == "sweep"
