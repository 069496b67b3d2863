"""The rounds of validation: every stage runs every micro-batch once, in order, and never before its input was there."""

import pytest

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.forward_only import rounds

LAYOUTS = [
    Layout(pipeline=ranks, schedule=schedule)  # type: ignore[arg-type]
    for ranks in (2, 4)
    for schedule in ("1f1b", "interleaved", "zb-h1", "zbv", "dualpipev")
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_every_pass_runs_once_and_after_the_one_before(layout: Layout, microbatches: int) -> None:
    round_of = {}
    for number, now in enumerate(rounds(layout, microbatches)):
        for rank, (stage, microbatch) in now.items():
            assert stage in layout.stages_of(rank) and (stage, microbatch) not in round_of
            round_of[stage, microbatch] = number
    assert round_of.keys() == {(stage, m) for stage in range(layout.stages) for m in range(microbatches)}
    for (stage, microbatch), number in round_of.items():
        assert stage == 0 or round_of[stage - 1, microbatch] < number
        assert microbatch == 0 or round_of[stage, microbatch - 1] < number


def test_a_pipeline_stays_full() -> None:
    """m + p − 1 rounds with one stage per rank; with two the ranks have twice the passes, and wait no longer."""
    assert len(rounds(Layout(pipeline=4), 16)) == 16 + 3
    assert len(rounds(Layout(pipeline=4, schedule="interleaved"), 16)) == 2 * 16 + 3
