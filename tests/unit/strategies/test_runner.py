"""What every runner has, and what those without a pipeline do with it."""

import pytest
import torch

from shardyard.strategies.data_parallel.serving import Serving
from shardyard.strategies.gradient_accumulation import Accumulate
from shardyard.strategies.pipeline_parallel.schedule import Pipeline
from shardyard.strategies.runner import Runner


@pytest.mark.parametrize("kind", [Accumulate, Pipeline, Serving])
def test_every_kind_trains_and_validates_by_itself(kind: type[Runner]) -> None:
    assert issubclass(kind, Runner) and not kind.__abstractmethods__
    assert {"train", "validate"} <= vars(kind).keys()


def test_without_a_pipeline_nothing_is_timed_simulated_or_kept() -> None:
    runner = Serving()
    with runner.timed():
        assert runner.train(torch.zeros(2, 3), torch.zeros(2, 3)) == 0
    assert (runner.plan(), runner.bubble(), runner.replay([], None), list(runner.older)) == ({}, None, [], [])  # type: ignore[arg-type]
    runner.expect(lambda: pytest.fail("no batch is needed before its step"))
    runner.before_update()


def test_a_kind_without_passes_cannot_be_made() -> None:
    class Idle(Runner):
        last = False

    with pytest.raises(TypeError, match="abstract"):
        Idle()  # type: ignore[abstract]
