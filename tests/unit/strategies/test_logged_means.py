"""Means of the steps of one rank, without reading a value from the device. `tests/parity/test_logged_means.py` has several ranks."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardyard.strategies.logged_means import LoggedMeans, put
from shardyard.strategies.telemetry.logged_values import LoggedValues


def alone(device: str = "cpu", wanted: bool = True) -> tuple[LoggedValues, LoggedMeans]:
    values = LoggedValues()
    mesh: Any = SimpleNamespace(layout=SimpleNamespace(world_size=1), device=torch.device(device))
    return values, LoggedMeans(values, mesh, wanted)


def step(values: LoggedValues, means: LoggedMeans, *logged: tuple[str, float]) -> dict[str, float]:
    means.begin()
    for name, value in logged:
        with values.microbatch():
            values.add(name, value)
    return means.means([float(number) for number in means.ballot()])


def test_each_step_has_the_means_of_its_own_values() -> None:
    values, means = alone()
    assert step(values, means, ("a", 1.0), ("a", 2.0), ("b", 5.0)) == {"a": 1.5, "b": 5.0}
    assert step(values, means, ("b", 7.0)) == {"b": 7.0}
    assert step(values, means) == {}
    assert step(values, means, ("c", 1.0), ("a", 4.0)) == {"a": 4.0, "c": 1.0}
    assert means.ballot()[0] == 0.0  # all names are known


def test_what_is_not_finite_is_nan_in_its_step_only() -> None:
    values, means = alone()
    assert math.isnan(step(values, means, ("a", math.inf), ("a", 1.0))["a"])
    assert step(values, means, ("a", 1.0)) == {"a": 1.0}


def test_where_no_model_logs_nothing_is_summed() -> None:
    values, means = alone(wanted=False)
    means.begin()
    with values.microbatch():
        values.add("a", 1.0)
    assert means.ballot() == [] and means.means([]) == {}


def test_the_host_reads_no_value_of_a_device() -> None:
    """Tensors on the meta device have no values: to read one raises."""
    values, means = alone("meta")
    loss = torch.ones(4, device="meta").mean()
    with pytest.raises(RuntimeError):
        float(loss)
    means._names = ("a", "b")
    means.begin()
    for _ in range(2):
        with values.microbatch():
            values.add("a", loss)
            values.add("b", 2.0)
    ballot = means.ballot()
    numbers = torch.zeros(len(ballot), dtype=torch.float64, device="meta")
    for place, number in enumerate(ballot):
        put(numbers, place, number)
    assert ballot[0] == 0.0 and ballot[2:] == [2, 4.0, 2] and isinstance(ballot[1], torch.Tensor)
