"""Validations of a job, as its curve shows them."""

from typing import Any

from shardyard.service.queries.steps import evaluations
from shardyard.service.schemas.step import Evaluation


def row(step: int, loss: float, ts: float) -> dict[str, Any]:
    return {"data": {"step": step, "loss": loss, "unigram_loss": 3.0}, "ts": ts}


def test_a_repeated_validation_replaces_the_earlier_one() -> None:
    found = evaluations([row(10, 2.0, 1.0), row(20, 1.5, 2.0), row(10, 1.9, 3.0)], since=0, newest=None)
    assert [(one.step, one.loss, one.ts) for one in found] == [(10, 1.9, 3.0), (20, 1.5, 2.0)]


def test_only_validations_after_a_step_are_returned() -> None:
    found = evaluations([row(10, 2.0, 1.0), row(20, 1.5, 2.0)], since=10, newest=20)
    assert found == [Evaluation(step=20, loss=1.5, unigram_loss=3.0, ts=2.0)]


def test_validations_of_steps_that_the_job_has_not_kept_are_left_out() -> None:
    found = evaluations([row(10, 2.0, 1.0), row(20, 1.5, 2.0)], since=0, newest=19)
    assert [one.step for one in found] == [10]
