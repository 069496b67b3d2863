"""The fill of a pipeline by formula, against simulations of the orders that run."""

import pytest

from shardyard.strategies.advisor.pipeline_fill import fill_s
from shardyard.strategies.layout import Layout, Schedule
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.simulator import Durations, evenly, simulate, steady_bubble

#: Schedule → the largest part of a step by which the formula may differ.
SCHEDULES: dict[Schedule, float] = {
    "gpipe": 1e-9,
    "1f1b": 1e-9,
    "interleaved": 1e-9,
    "zb-h1": 1e-9,
    "zb-h2": 1e-9,
    "interleaved-zb": 1e-9,
    "zbv": 0.01,
    "dualpipev": 0.01,
    "2bw": 1e-9,
    "pipedream": 1e-9,
}

#: Schedules with a number of ranks and one of micro-batches that they run.
LEGAL = [
    (schedule, ranks, microbatches)
    for schedule in SCHEDULES
    for ranks, microbatches in ((2, 1), (2, 2), (2, 8), (4, 1), (4, 5), (4, 8), (4, 16), (8, 32))
    if Layout(pipeline=ranks, schedule=schedule).microbatch_problem(microbatches) is None
]


def simulated(layout: Layout, microbatches: int, forward: float, backward: float, weight: float) -> float:
    """Seconds of the step that the busiest rank does not compute."""
    each = layout.stages_per_rank
    parts = [[one / each] * layout.stages for one in (forward, backward, weight)]
    timeline = simulate(planned_order(layout, microbatches), Durations(*parts))
    return timeline.makespan - max(timeline.busy(rank) for rank in range(layout.pipeline))


@pytest.mark.parametrize(("schedule", "ranks", "microbatches"), LEGAL)
@pytest.mark.parametrize(
    ("forward", "backward", "weight"), [(1.0, 1.0, 1.0), (1.0, 1.25, 1.0), (1.5, 1.5, 1.0), (1.0, 3.0, 1.0)]
)
def test_it_is_what_the_schedule_leaves_empty(
    schedule: Schedule, ranks: int, microbatches: int, forward: float, backward: float, weight: float
) -> None:
    layout = Layout(pipeline=ranks, schedule=schedule)
    found = simulated(layout, microbatches, forward, backward, weight)
    step = microbatches * (forward + backward + weight) + found
    assert fill_s(layout, microbatches, forward, backward, weight) == pytest.approx(
        found, abs=SCHEDULES[schedule] * step
    )


def test_2bw_leaves_nothing_empty() -> None:
    assert fill_s(Layout(pipeline=4, schedule="2bw"), 8, 1, 1, 1) == 0


@pytest.mark.parametrize(("schedule", "microbatches"), [("2bw", 8), ("2bw", 4), ("pipedream", 1)])
def test_ends_that_share_a_weight_leave_what_they_wait_for_empty(schedule: Schedule, microbatches: int) -> None:
    """As the plan's `bubble_simulated` has it."""
    layout = Layout(pipeline=4, schedule=schedule)
    empty = fill_s(layout, microbatches, 1, 1.5, 0.5, ends_apart=True)
    durations = Durations([1.0] * 4, [1.5] * 4, [0.5] * 4)
    assert empty == 3 * 2
    assert steady_bubble(durations, microbatches) == pytest.approx(empty / (3 * microbatches + empty))


@pytest.mark.parametrize("ranks", [2, 4])
def test_pipedreams_backward_passes_run_one_after_the_other(ranks: int) -> None:
    """A step takes F + p(I + W), of which a rank is busy F + I + W. That is the plan's `bubble_simulated`, too."""
    layout = Layout(pipeline=ranks, schedule="pipedream")
    empty = fill_s(layout, 1, 1, 1, 1)
    assert empty == 2 * (ranks - 1)
    assert simulate(planned_order(layout, 1), evenly([3.0] * ranks)).bubble == pytest.approx(empty / (3 + empty))


def test_without_a_pipeline_there_is_none() -> None:
    assert fill_s(Layout(data=4), 8, 1, 1, 1) == 0
