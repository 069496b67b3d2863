"""Which sizes are run: a few blocks and micro-batches where memory grows evenly with them, else all."""

from typing import Any

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run.one_step import dry_run, grid_of
from shardyard.workers.spec import TrainSpec


def train(preset: str, layout: dict[str, Any], global_batch: int = 64, **changes: Any) -> TrainSpec:
    return TrainSpec.model_validate(
        {
            "model": {"preset": preset},
            "data": {"seq_len": 1024},
            "precision": "bf16",
            "steps": 1,
            "global_batch": global_batch,
            "layout": layout,
            **changes,
        }
    )


def test_a_large_model_is_run_with_a_few_blocks_and_micro_batches() -> None:
    grid = grid_of(train("70B", {"data": 4, "zero": 3, "micro_batch": 1}), 32000, place=0, whole=False)
    assert grid.sizes == ((3, 2), (3, 3), (4, 2), (4, 3)) and grid.wanted == (80, 16)


@pytest.mark.parametrize(("every", "blocks"), [(2, (4, 6)), (3, (5, 8)), (64, (None,))])
def test_with_recompute_of_every_nth_block_they_differ_by_n(every: int, blocks: tuple[int | None, ...]) -> None:
    """And leave as many over as the 80 of the model: each N more are one recomputed block more."""
    layout = {"data": 4, "zero": 3, "micro_batch": 1}
    found = train("70B", layout, recompute=f"every-{every}")
    assert grid_of(found, 32000, place=0, whole=False).blocks == blocks


def test_unequal_stages_of_a_rank_with_recompute_of_every_nth_block_are_run_with_all_blocks() -> None:
    layout = {"pipeline": 4, "schedule": "interleaved", "virtual": 2, "micro_batch": 1}
    plain, every = (
        grid_of(train("70B", layout, recompute=mode), 128_000, place=3, whole=False) for mode in ("full", "every-2")
    )
    assert plain.wanted[0] % 1 == 0.5
    assert (plain.blocks, every.blocks) == ((3, 4), (None,))


def test_the_wanted_depth_is_that_of_the_ranks_stages() -> None:
    grid = grid_of(train("8B", {"pipeline": 4, "tensor": 2, "micro_batch": 1}), 256, place=1, whole=False)
    assert grid.blocks == (3, 4) and grid.wanted[0] == pytest.approx(8, abs=1)
    assert grid.microbatches == (8, 12)


def test_rounds_are_as_long_as_those_of_the_whole_step() -> None:
    layout = {"pipeline": 8, "schedule": "interleaved", "virtual": 2, "micro_batch": 1}
    grid = grid_of(train("8B", layout, global_batch=63), 256, place=0, whole=False)
    assert grid.microbatches == (36, 54)  # 63 are seven rounds of nine, not of eight


@pytest.mark.parametrize("whole", [False, True])
def test_small_and_whole_ones_are_run_as_they_are(whole: bool) -> None:
    grid = grid_of(train("70B" if whole else "micro", {"data": 4, "zero": 1}), 256, place=0, whole=whole)
    assert grid.whole


def test_samples_of_an_own_source_are_refused() -> None:
    given = {"steps": 1, "global_batch": 4, "model": {"import": "a:b"}, "data": {"source": "a:c"}}
    with pytest.raises(Refusal) as refused:
        dry_run(TrainSpec.model_validate(given), 1)
    assert refused.value.field == "data.source" and "Train a few steps" in refused.value.remedy
