"""Which sizes are run: a few blocks and micro-batches where memory grows evenly with them, else all."""

from typing import Any

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run.one_step import dry_run, grid_of
from shardyard.workers.spec import TrainSpec


def train(preset: str, layout: dict[str, Any], global_batch: int = 64) -> TrainSpec:
    return TrainSpec.model_validate(
        {
            "model": {"preset": preset},
            "data": {"seq_len": 1024},
            "precision": "bf16",
            "steps": 1,
            "global_batch": global_batch,
            "layout": layout,
        }
    )


def test_a_large_model_is_run_with_a_few_blocks_and_micro_batches() -> None:
    grid = grid_of(train("70B", {"data": 4, "zero": 3, "micro_batch": 1}), 32000, place=0, whole=False)
    assert grid.sizes == ((3, 2), (3, 3), (4, 2), (4, 3)) and grid.wanted == (80, 16)


def test_the_wanted_depth_is_that_of_the_ranks_stages() -> None:
    grid = grid_of(train("8B", {"pipeline": 4, "tensor": 2, "micro_batch": 1}), 256, place=1, whole=False)
    assert grid.blocks == (3, 4) and grid.wanted[0] == pytest.approx(8, abs=1)
    assert grid.microbatches == (8, 12)


@pytest.mark.parametrize("whole", [False, True])
def test_small_and_whole_ones_are_run_as_they_are(whole: bool) -> None:
    grid = grid_of(train("70B" if whole else "micro", {"data": 4, "zero": 1}), 256, place=0, whole=whole)
    assert grid.whole


def test_samples_of_an_own_source_are_refused() -> None:
    given = {"steps": 1, "global_batch": 4, "model": {"import": "a:b"}, "data": {"source": "a:c"}}
    with pytest.raises(Refusal) as refused:
        dry_run(TrainSpec.model_validate(given), 1)
    assert refused.value.field == "data.source" and "Train a few steps" in refused.value.remedy
