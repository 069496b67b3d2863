"""What each search draws."""

import pytest

from shardyard.service.sweep_spec import Sweep
from shardyard.service.sweeps.points import points

PARAMETERS = {"a": {"min": 0.0, "max": 1.0}, "b": ["x", "y"]}


def sweep(**fields: object) -> Sweep:
    return Sweep.model_validate({"parameters": PARAMETERS, **fields})


def test_a_grid_has_all_combinations_in_order() -> None:
    found = points(sweep(parameters={"a": [1, 2], "b": ["x", "y"]}, search="grid"))
    assert found == [{"a": a, "b": b} for a in (1, 2) for b in ("x", "y")]
    assert points(sweep(parameters={"a": [1, 2], "b": ["x", "y"]}, search="grid", trials=3)) == found[:3]


@pytest.mark.parametrize("search", ["random", "sobol"])
def test_the_same_seed_draws_the_same_and_more_trials_only_add(search: str) -> None:
    few, more = points(sweep(search=search, trials=8)), points(sweep(search=search, trials=16))
    assert few is not None and more is not None and more[:8] == few
    assert points(sweep(search=search, trials=8, seed=1)) != few
    assert all(0 <= one["a"] < 1 and one["b"] in "xy" for one in more)


def test_each_eighth_of_a_sobol_sequence_has_two_of_sixteen() -> None:
    found = points(sweep(search="sobol", trials=16))
    assert found is not None
    assert sorted(int(one["a"] * 8) for one in found) == sorted([*range(8)] * 2)


def test_sobol_draws_large_whole_numbers_finely() -> None:
    found = points(sweep(search="sobol", parameters={"a": {"min": 0, "max": 2**40}}))
    assert found is not None and any(one["a"] % 2**16 for one in found), "24 bits would not do"


def test_optuna_decides_later() -> None:
    assert points(sweep(search="optuna")) is None
