"""What a snapshot costs, from the lengths of steps alone; `callbacks/test_snapshotting.py` has the interval that follows."""

import pytest
import torch

from shardyard.strategies.telemetry.step_sampling import FIRST
from shardyard.strategies.telemetry.wait_time import StepTiming
from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.trainer.snapshot_cost import COMPARED, WARM, ProcessorTime, StepTime, cost_on
from shardyard.workers.trainer.step_record import StepRecord, StepStats


def compared(without: list[float], copying: list[float], copy_s: float = 0.0) -> float:
    cost = StepTime()
    for _ in range(WARM):
        cost.add(60.0, True)
    for plain_s, copying_s in zip(without, copying, strict=True):
        cost.add(plain_s, False)
        cost.add(copying_s, True)
    return cost.interval(copy_s, 0.0)


def test_the_cost_is_what_steps_are_longer_and_not_what_the_copy_takes() -> None:
    assert compared([1.0] * 5, [1.02] * 5, copy_s=9.0) == pytest.approx(1)
    assert compared([1.0] * 5, [1.5] * 5) == pytest.approx(25)
    assert compared([1.0] * 5, [0.99] * 5) < 0, "it rounds to every step"


def test_two_slow_steps_of_either_kind_do_not_count() -> None:
    assert compared([1.0, 9.0, 1.0, 1.0, 9.0], [1.04, 1.04, 7.0, 7.0, 1.04]) == pytest.approx(2)


def test_steps_with_and_without_a_copy_take_turns() -> None:
    cost, step, copying = StepTime(), 1, set[int]()
    while step < cost.steps:
        copying.add(step + 1)
        step += cost.gap(step)
    measured = range(WARM + 1, cost.steps + 1)
    assert [step in copying for step in measured] == [False, True] * COMPARED
    assert {2, 3} <= copying, "the two segments are mapped and pinned before"


def test_all_steps_that_are_compared_are_measured() -> None:
    assert StepTime.steps < FIRST


def test_a_step_on_cuda_lasts_from_meeting_to_meeting() -> None:
    stats = StepStats(1, 1.0, 1.0, 1.0, None, False, StopRequest.NO, 0.0, StepTiming(busy_s=2.0, wait_s=0.5))
    record = StepRecord(stats, 0.1, 0.7)
    cuda, cpu = cost_on(torch.device("cuda")), cost_on(torch.device("cpu"))
    assert isinstance(cuda, StepTime) and isinstance(cpu, ProcessorTime)
    assert (cuda.length(record), cpu.length(record)) == (2.5, 0.7)
