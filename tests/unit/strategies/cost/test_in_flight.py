"""How many micro-batches a pipeline's ranks hold, against the order in which torch's schedules act."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import pytest

from shardyard.strategies.cost.in_flight import heaviest, in_flight
from shardyard.strategies.layout import Layout, Schedule
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import Action, Order, peaks


def cases(schedules: Iterable[str]) -> list[Any]:
    """Schedule, ranks, and stages per rank of the schedules that let a layout choose them. Orders of many ranks take longer."""
    return [
        pytest.param(schedule, ranks, each, marks=[pytest.mark.full] * (ranks > 4))
        for schedule in schedules
        for ranks in (2, 3, 4, 5, 8)
        for each in ((2, 3) if schedule.startswith("interleaved") and ranks < 8 else (2,))
    ]


def orders(schedule: Schedule, ranks: int, each: int) -> Iterator[tuple[Layout, int, Order]]:
    """A layout with every number of micro-batches that it runs, up to three for each rank, and the order that runs."""
    layout = Layout(pipeline=ranks, schedule=schedule, virtual=each)
    for microbatches in range(1, 3 * ranks + 1):
        if layout.microbatch_problem(microbatches) is None:
            yield layout, microbatches, planned_order(layout, microbatches)


@pytest.mark.parametrize(("schedule", "ranks", "each"), cases(get_args(Schedule)))
def test_it_is_what_the_schedule_holds(schedule: Schedule, ranks: int, each: int) -> None:
    for layout, microbatches, order in orders(schedule, ranks, each):
        found = [in_flight(layout, microbatches, place) for place in range(ranks)]
        assert found == peaks(order), microbatches


def largest(actions: Iterable[Action], sizes: dict[int, int]) -> int:
    """The most that a rank holds if a pass through a stage holds its size, counted from the rank's actions."""
    held = most = 0
    for action in actions:
        held += {"F": 1, "B": -1, "W": -1}.get(action.kind, 0) * sizes[action.stage]
        most = max(most, held)
    return most


@pytest.mark.parametrize(("schedule", "ranks", "each"), cases(["interleaved", "interleaved-zb", "zbv", "dualpipev"]))
def test_passes_through_large_stages_count_for_more(schedule: Schedule, ranks: int, each: int) -> None:
    for layout, microbatches, order in orders(schedule, ranks, each):
        for place, actions in enumerate(order):
            for sizes in ((4, 1, 1), (1, 4, 1), (2, 3, 4), (8, 1, 8), (0, 1, 0)):
                own = sizes[: layout.stages_per_rank]
                counted = largest(actions, dict(zip(layout.stages_of(place), own, strict=True)))
                assert heaviest(layout, microbatches, place, own) == counted, (microbatches, place, own)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("schedule", ["2bw", "pipedream"])
def test_ranks_that_end_a_step_apart_hold_what_the_papers_say(schedule: Schedule, ranks: int) -> None:
    for layout, microbatches, _ in orders(schedule, ranks, 2):
        found = [in_flight(layout, microbatches, place, ends_apart=True) for place in range(ranks)]
        assert found == peaks(planned_order(layout, microbatches, ends_apart=True)) == [*range(ranks, 0, -1)]


def test_numbers_that_no_round_divides_are_among_them() -> None:
    """As 7 micro-batches of 4 ranks, which run in one round."""
    assert [microbatches for _, microbatches, _ in orders("interleaved-zb", 4, 2)] == [4, 5, 6, 7, 8, 10, 12]
    assert [microbatches for _, microbatches, _ in orders("zbv", 4, 2)] == [*range(4, 13)]


def test_without_a_pipeline_there_is_one() -> None:
    assert in_flight(Layout(data=4), 8, 0) == 1
