"""Values that are gathered: all arrive, and few wait."""

from shardyard.workers.messages.metric_block import MOST_NAMES, MetricBlock, columns
from shardyard.workers.program.metric_batch import MOST_WAITING, CountedSteps, MetricBatch


def test_values_arrive_once_and_by_name() -> None:
    found: list[list[MetricBlock]] = []
    batch = MetricBatch(found.append)
    batch.flush()
    for step in range(3):
        batch.add("a", step, step / 2)
    batch.add("b", 7, float("nan"))
    batch.flush()
    batch.flush()
    assert [dict(columns(block)) for blocks in found for block in blocks] == [
        {"a": [(0, 0.0), (1, 0.5), (2, 1.0)]},
        {"b": [(7, None)]},
    ]


def test_more_values_than_may_wait_are_passed_on_at_once() -> None:
    found: list[int] = []
    batch = MetricBatch(lambda blocks: found.append(sum(len(block.steps) for block in blocks)))
    for step in range(MOST_WAITING + 1):
        batch.add(f"m{step % 3}", step, 1.0)
    assert found == [MOST_WAITING]
    batch.flush()
    assert found == [MOST_WAITING, 1]


def test_values_that_are_all_at_step_0_are_counted() -> None:
    steps = CountedSteps()
    assert [steps.step("a", sent) for sent in (0, 0, 0)] == [0, 1, 2]
    assert [steps.step("b", sent) for sent in (0, 5, 0, 6)] == [0, 5, 0, 6]
    assert steps.step("a", 0) == 3


def test_the_counts_of_a_thousand_names_are_kept() -> None:
    steps = CountedSteps()
    for number in range(MOST_NAMES):
        steps.step(f"m{number}", 0)
    assert [steps.step("one more", 0), steps.step("one more", 0), steps.step("m0", 0)] == [0, 0, 1]
