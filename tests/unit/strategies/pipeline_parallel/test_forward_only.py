"""The rounds of validation: every stage runs every micro-batch once, in order, and never before its input was there."""

import pytest
import torch
from harness.ranks import group, spawn

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.forward_only import header_of, read_header, rounds

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


def test_a_header_has_every_tensor_that_a_stage_passes_on() -> None:
    passed = (((2, 7, 8), torch.float64), ((2, 5, 8), torch.bfloat16), ((), torch.int64), ((2, 0), torch.bool))
    assert read_header(header_of(passed)) == passed
    assert read_header(header_of(())) == ()
    assert len(header_of(passed)) == len(header_of(()))


def test_a_header_refuses_what_it_has_no_room_for() -> None:
    with pytest.raises(ValueError, match="30 tensors, more than a header"):
        header_of([((2,), torch.float32)] * 30)
    with pytest.raises(ValueError, match=r"torch\.complex64; it may be any of torch\.float64"):
        header_of([((2,), torch.complex64)])


def test_a_rank_holds_as_many_results_for_many_micro_batches_as_for_few() -> None:
    """Those of as many rounds as there are ranks."""
    first, last = spawn(_held, 2, 32)
    assert first <= 2 and last <= 1


def _held(rank: int, world: int, port: int, microbatches: int) -> int:
    """The most results of this rank's stage that existed when it began with another micro-batch."""
    import weakref

    import torch
    from torch import nn

    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.pipeline_parallel.forward_only import ForwardOnly

    results: list[weakref.ref[torch.Tensor]] = []
    counts = []

    class AddOne(nn.Module):
        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            counts.append(sum(one() is not None for one in results))
            added = numbers + 1
            results.append(weakref.ref(added))
            return added

    layout = Layout(pipeline=world)
    mesh = make_mesh(layout, group(rank, world, port))
    parts, found = [AddOne() for _ in layout.stages_of(rank)], list[float]()
    inputs = torch.arange(float(microbatches)).view(-1, 1, 1)
    ForwardOnly(parts, mesh, microbatches).run(inputs, lambda _, output: found.append(output.item()))
    assert found in ([], [number + layout.stages for number in range(microbatches)])
    return max(counts)
