"""A gradient is final when the last stage that uses its parameter has had its last pass, in each step."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from shardyard.strategies.data_strategy import DataStrategy
from shardyard.strategies.pipeline_parallel.last_passes import LastPasses


class Noted:
    """A data strategy that notes which gradients are final after which pass."""

    def __init__(self) -> None:
        self.final: list[list[nn.Parameter]] = []

    @contextmanager
    def finishing(self, values: Collection[nn.Parameter]) -> Iterator[None]:
        self.final.append(list(values))
        yield


def passed(stages: list[list[nn.Parameter]], order: tuple[int, ...], steps: int = 1) -> Any:
    noted = Noted()
    passes = LastPasses(stages, cast(DataStrategy, noted))
    for _ in range(steps):
        passes.begin()
        for number in order:
            with passes.of(number):
                pass
    return noted.final


def test_a_stage_makes_its_own_gradients_final() -> None:
    first, second = ([nn.Parameter(torch.zeros(1))] for _ in range(2))
    assert passed([first, second], (1, 0), steps=2) == [second, first] * 2


def test_a_parameter_of_two_stages_is_final_after_the_later_one() -> None:
    tied, own, other = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    assert passed([[tied, own], [other, tied]], (1, 0), steps=2) == [[other], [tied, own]] * 2
    assert passed([[tied, own], [other, tied]], (0, 1)) == [[own], [other, tied]]
