"""How many micro-batches a pipeline's ranks hold, against the order in which torch's schedules act."""

import pytest

from shardyard.strategies.cost.in_flight import in_flight
from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import peaks


@pytest.mark.parametrize(
    "schedule", ["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev", "2bw"]
)
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 8), (4, 8), (4, 16)])
def test_it_is_what_the_schedule_holds(schedule: str, ranks: int, microbatches: int) -> None:
    layout = Layout.model_validate({"pipeline": ranks, "schedule": schedule})
    held = peaks(planned_order(layout, microbatches))
    assert [in_flight(layout, microbatches, place) for place in range(ranks)] == held


@pytest.mark.parametrize("ranks", [2, 4])
def test_it_is_what_pipedream_holds(ranks: int) -> None:
    layout = Layout.model_validate({"pipeline": ranks, "schedule": "pipedream"})
    assert [in_flight(layout, 1, place) for place in range(ranks)] == peaks(planned_order(layout, 1))


def test_without_a_pipeline_there_is_one() -> None:
    assert in_flight(Layout(data=4), 8, 0) == 1
