import pytest

from shardyard.workers.dry_run.extrapolation import Grid, highest
from shardyard.workers.dry_run.memory_meter import Reading, Site, Use


def use(first: int, last: int, most: int) -> Use:
    return Use(*(Reading(value, (value,)) for value in (first, last, most)))


def site(line: str) -> Site:
    return Site("update", line, "aten::mul", backward=False)


def test_a_product_of_blocks_and_micro_batches_is_exact() -> None:
    grid = Grid((2, 4), (2, 3), wanted=(80, 16))
    value = grid.value(lambda size: 7 + 5 * (size[0] or 0) + 3 * size[1] + 2 * (size[0] or 0) * size[1])
    assert value == pytest.approx(7 + 5 * 80 + 3 * 16 + 2 * 80 * 16)


def test_one_run_is_taken_as_it_is() -> None:
    grid = Grid((None,), (8,), wanted=(32, 8))
    assert grid.whole and grid.value(lambda _: 42) == 42


def test_another_line_may_be_the_highest_of_the_whole_model() -> None:
    """At 2 and 3 blocks the loss is highest; at 10 the end of the backward pass is."""
    grid = Grid((2, 3), (1,), wanted=(10, 1))
    runs = {
        (blocks, 1): {site("loss"): use(*[100 + blocks] * 3), site("backward"): use(1, 30 * blocks, 30 * blocks)}
        for blocks in (2, 3)
    }
    assert (peak := highest(grid, runs)).bytes == 300 and peak.site == site("backward")


def test_lines_that_not_all_runs_have_are_left_out() -> None:
    grid = Grid((2, 3), (1,), wanted=(10, 1))
    runs = {(2, 1): {site("a"): use(1, 1, 1)}, (3, 1): {site("a"): use(1, 1, 1), site("b"): use(9, 9, 9)}}
    assert highest(grid, runs).site == site("a")
