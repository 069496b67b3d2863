"""Findings at the value of a parameter name the parameter."""

from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from shardyard.api.errors import InvalidDocument
from shardyard.api.http.sweep_document import read_sweep
from shardyard.api.http.validation_errors import parameter_errors
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


@pytest.mark.parametrize(
    ("sweep", "field", "says"),
    [
        ({"trials": "5"}, "trials", "whole number without quotes"),
        ({"parallel": True}, "parallel", "whole number"),
        ({"seed": "3"}, "seed", "whole number"),
        (
            {"parameters": {"ranks": {"min": 1, "max": "high"}}},
            "parameters.ranks.max",
            "valid integer or a valid number. Write a whole number without quotes, or a number.",
        ),
        ({"parameters": {"ranks": [1, [2]]}}, "parameters.ranks[1]", "valid string or a valid boolean or"),
        ({"parameters": {"ranks": {"values": [{"a": 1}]}}}, "parameters.ranks.values[0]", "true or false, or"),
        ({"parameters": {"command[3]": ["x" * 5000]}}, "parameters.command[3][0]", "Use at most 4096 characters."),
        ({"parameters": {"ranks": {"low": 1}}}, "parameters.ranks.low", "not permitted"),
        ({"parameters": {"no key": [1]}}, "parameters.no key", "should match"),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_finding_at_the_field_as_written(
    sweep: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(RequestValidationError) as refused:
        read_sweep({**COMMAND, "sweep": {"parameters": {"ranks": [1, 2]}, **sweep}})
    (found,) = parameter_errors(refused.value.errors())
    assert found.field == f"sweep.{field}" and says in f"{found.message} {found.remedy}"


@pytest.mark.parametrize("document", [None, [], COMMAND, {**COMMAND, "sweeps": {}}])
def test_without_sweep_it_is_no_sweep(document: Any) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_sweep(document)
    assert refused.value.field == "sweep"
