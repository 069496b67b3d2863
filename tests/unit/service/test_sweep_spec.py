"""The values of parameters, and where they go in a spec."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.service.sweep_spec import Asha, Parameter, Sweep, with_values
from shardyard.strategies.layout import Refusal


@pytest.mark.parametrize(
    ("parameter", "at"),
    [
        ({"values": ["a", "b", "c"]}, {0.0: "a", 0.34: "b", 0.999: "c"}),
        ({"min": 1, "max": 3}, {0.0: 1, 0.34: 2, 0.67: 3, 0.999: 3}),
        ({"min": 0.0, "max": 2.0}, {0.0: 0.0, 0.25: 0.5, 0.5: 1.0}),
        ({"min": 1e-4, "max": 1e-2, "scale": "log"}, {0.0: 1e-4, 0.5: 1e-3}),
        ({"min": 1, "max": 1000, "scale": "log"}, {0.0: 1, 0.999999: 1000}),
    ],
)
def test_a_place_between_0_and_1_is_a_value(parameter: dict[str, Any], at: dict[float, Any]) -> None:
    found = Parameter.model_validate(parameter)
    for place, value in at.items():
        assert found.at(place) == (pytest.approx(value) if isinstance(value, float) else value)


def test_whole_numbers_are_drawn_evenly() -> None:
    parameter = Parameter(min=1, max=4)
    drawn = [parameter.at(place / 4000) for place in range(4000)]
    assert [drawn.count(value) for value in (1, 2, 3, 4)] == [1000] * 4


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ({"values": [3, 1]}, [3, 1]),
        ({"min": 2, "max": 5}, [2, 3, 4, 5]),
        ({"min": 1.0, "max": 2.0, "count": 3}, [1.0, 1.5, 2.0]),
        ({"min": 1e-4, "max": 1e-2, "scale": "log", "count": 3}, [1e-4, 1e-3, 1e-2]),
        ({"min": 1, "max": 4, "count": 3}, [1, 2, 4]),
        ({"min": 1, "max": 2, "count": 5}, [1, 2]),
    ],
)
def test_a_grid_has_both_ends(parameter: dict[str, Any], values: list[Any]) -> None:
    assert Parameter.model_validate(parameter).grid() == pytest.approx(values)


@pytest.mark.parametrize(
    ("parameter", "field"),
    [
        ({"min": 1, "max": 10**400}, "max"),
        ({"min": -(2**53) - 1, "max": 0.5}, "min"),
        ({"min": -1.7e308, "max": 1.7e308}, "max"),
        ({"min": 5e-324, "max": 1.0, "scale": "log"}, "max"),
    ],
)
def test_a_range_whose_numbers_floats_cannot_hold_is_refused(parameter: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=f"Value error, {field}: "):
        Parameter.model_validate(parameter)
    assert Parameter(min=0, max=2**53).at(1 - 2**-40) <= 2**53
    assert 0 < Parameter(min=1e-300, max=1.0, scale="log").at(0.5) < 1.0


def test_rungs_are_powers_of_the_reduction_below_the_end() -> None:
    assert Asha(min_steps=3).rungs(81) == [3, 9, 27]
    assert Asha(min_steps=3).rungs(82) == [3, 9, 27, 81]
    assert Asha(min_steps=5, reduction=2).rungs(5) == []


def test_values_go_to_their_paths_and_the_spec_stays_as_it_was() -> None:
    spec = {"train": {"lr": 1}, "command": ["python", "a.py"], "resources": None}
    changed = with_values(spec, {"train.lr": 2, "command[1]": "b.py", "resources.env.LR": "3"})
    assert changed == {"train": {"lr": 2}, "command": ["python", "b.py"], "resources": {"env": {"LR": "3"}}}
    assert spec == {"train": {"lr": 1}, "command": ["python", "a.py"], "resources": None}
    for path in ("command[2]", "command.a", "train[0]", "train.lr.more"):
        with pytest.raises(Refusal) as refused:
            with_values(spec, {path: 1})
        assert refused.value.field == f"sweep.parameters.{path}"


def test_numbers_are_text_in_a_variable_and_in_a_command() -> None:
    spec = {"command": ["python", "a.py"], "train": {}}
    values = {"resources.env.LR": 0.0001, "command[1]": 3, "train.lr": 0.0001, "resources.env.ON": True}
    changed = with_values(spec, values)
    assert changed["resources"] == {"env": {"LR": "0.0001", "ON": True}}
    assert (changed["command"], changed["train"]) == (["python", "3"], {"lr": 0.0001})


def test_a_sweep_reads_a_plain_list_and_counts_its_trials() -> None:
    grid = Sweep.model_validate({"parameters": {"a": [1, 2], "b": {"min": 1, "max": 3}}, "search": "grid"})
    assert grid.parameters["a"].values == [1, 2] and grid.number_of_trials == 6
    assert grid.model_copy(update={"trials": 4}).number_of_trials == 4
    assert Sweep.model_validate({"parameters": {"a": [1]}}).number_of_trials == 16
    assert Sweep.model_validate(grid.model_dump(mode="json", exclude_none=True)) == grid


@pytest.mark.parametrize("value", [math.nan, math.inf, [1], {"a": 1}, "line\nbreak"])
def test_values_are_plain(value: Any) -> None:
    with pytest.raises(ValidationError):
        Sweep.model_validate({"parameters": {"a": [value]}})
