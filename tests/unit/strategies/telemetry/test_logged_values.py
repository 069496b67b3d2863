"""What a model logs in a step is summed by name, and outside of a step it is ignored."""

from typing import Any

import pytest
import torch

from shardyard.strategies.telemetry import current
from shardyard.strategies.telemetry.current import Telemetry
from shardyard.strategies.telemetry.logged_values import MOST_NAMES, LoggedValues
from shardyard.workers.program.metric_log import log


def test_values_of_a_step_are_summed_and_those_before_it_are_gone() -> None:
    values = LoggedValues()
    values.add("early", 1.0)
    values.begin()
    with values.microbatch():
        values.add("aux", torch.tensor([[2.0]], requires_grad=True))
        values.add("aux", 3)
    values.add("late", 1.0)
    assert values.sums == {"aux": (5.0, 2)}
    values.begin()
    assert values.sums == {}


@pytest.mark.parametrize(("name", "value"), [("a", torch.ones(2)), ("", 1.0), ("a\n", 1.0), ("a" * 201, 1.0), (3, 1.0)])
def test_what_is_no_scalar_with_a_name_is_refused(name: Any, value: Any) -> None:
    values = LoggedValues()
    with values.microbatch(), pytest.raises(ValueError, match=r"log a scalar|is not a name"):
        values.add(name, value)


def test_names_are_bounded() -> None:
    values = LoggedValues()
    with values.microbatch():
        for at in range(MOST_NAMES):
            values.add(f"n{at}", at)
        values.add("n0", 1)
        with pytest.raises(ValueError, match="one more"):
            values.add("more", 1.0)


def test_shardyard_log_of_a_model_logs_into_the_step() -> None:
    telemetry = Telemetry()
    with current.installed(telemetry):
        log({"outside": 1.0})
        with telemetry.logged.microbatch():
            log({"aux": 2.0, "z": torch.tensor(4.0)})
            with pytest.raises(ValueError, match="leave out step"):
                log({"aux": 2.0}, step=3)
            with pytest.raises(ValueError, match="leave out step"):
                log({"aux": 2.0}, per_rank=True)
    assert telemetry.logged.sums == {"aux": (2.0, 1), "z": (4.0, 1)}
