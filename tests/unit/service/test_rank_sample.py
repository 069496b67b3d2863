"""Who is slow is said of peers alone: ranks with an equal share of the work."""

import pytest

from shardyard.service.rank_sample import row_of, slow_rank
from shardyard.service.store.rank_samples import unpack
from shardyard.strategies.layout import Layout


def test_the_rank_that_computes_longer_is_named_with_its_milliseconds() -> None:
    slow = slow_rank([0.052, 0.051, 0.053, 0.1], [0.05, 0.05, 0.05, 0.0], [0] * 4)
    assert slow is not None and (slow.rank, slow.own_s, slow.usual_s) == (3, 0.1, 0.052)
    assert slow.message == "rank 3 computes 48 ms longer than its peers"


@pytest.mark.parametrize(
    ("own", "parts"),
    [
        ([0.05, 0.051, 0.05, 0.052], [0] * 4),  # less than a twentieth of the step
        ([0.05, 0.1, 0.05, 0.1], [0, 1, 0, 1]),  # a stage that has more to do
        ([0.05, 0.1], [0, 1]),  # nobody to compare with
        ([0.04, 0.06, 0.05, 0.07, 0.03, 0.08], [0] * 6),  # within their spread
        ([None, None, 0.1, None], [0] * 4),
        ([], []),
    ],
    ids=str,
)
def test_nobody_is_named_without_reason(own: list[float | None], parts: list[int]) -> None:
    assert slow_rank(own, [0.05] * len(own), parts) is None


def test_of_several_the_one_that_costs_most() -> None:
    slow = slow_rank([0.05, 0.2, 0.05, 0.1, 0.05, 0.3], [0.0] * 6, [0, 0, 0, 1, 1, 1])
    assert slow is not None and slow.rank == 5


def told(ranks: int) -> dict[str, object]:
    return {"step": 7, "steps": 3, **{name: [0.1] * ranks for name in ("step_s", "own_s", "waited_s", "memory")}}


def test_a_sample_knows_the_axes_of_its_layout_if_it_is_of_as_many_ranks() -> None:
    layout = Layout(pipeline=2, tensor=2)
    lists = unpack(row_of(1.0, 1, layout, told(4))["packed"])
    assert list(lists["axes"].items()) == [("pipeline", 2), ("data", 1), ("context", 1), ("tensor", 2)]
    assert lists["parts"] == [0, 0, 1, 1]
    assert "axes" not in unpack(row_of(1.0, 1, layout, told(2))["packed"])


def test_lists_of_different_lengths_are_no_sample() -> None:
    with pytest.raises(ValueError, match="lists of"):
        row_of(1.0, 1, Layout(), told(2) | {"own_s": [0.1]})
    with pytest.raises(ValueError, match="lists of"):
        row_of(1.0, 1, Layout(), told(0))
