"""What ranks send to their supervisor."""

import pytest

from shardyard.workers.messages.event import BadEvent, from_json, to_json
from shardyard.workers.messages.rank_event import RANK_KINDS, FailedEvent, FailureFacts, RankStepEvent, facts_of


def test_a_rank_and_a_gang_report_a_step_as_different_types() -> None:
    reported = from_json("step", {"step": 1, "step_s": 0.5, "busy_s": 0.25}, RANK_KINDS)
    assert reported == RankStepEvent(step=1, step_s=0.5, busy_s=0.25)
    with pytest.raises(BadEvent):
        from_json("step", {"step": 1, "step_s": 0.5, "busy_s": 0.25})


def test_a_step_of_rank_0_is_known_by_the_jobs_numbers() -> None:
    """Its loss may be no number: of a step that fp16 skipped."""
    assert not RankStepEvent(step=1, step_s=0.5).of_job
    assert RankStepEvent(step=1, step_s=0.5, loss=2.0).of_job
    assert RankStepEvent(step=1, step_s=0.5, loss=None, skipped=True).of_job


def test_an_exception_that_has_other_facts_has_none_for_us() -> None:
    class Odd(Exception):
        def __init__(self, facts: object) -> None:
            self.facts = facts

    assert facts_of(Odd({"cause": "replica_mismatch", "ranks": [3]})).ranks == (3,)
    for facts in (None, "text", {"rank": "none"}, {"ranks": 3}):
        assert facts_of(Odd(facts)) == FailureFacts() == facts_of(ValueError())


def test_facts_of_a_failure_are_read_with_it() -> None:
    facts = FailureFacts(cause="replica_mismatch", ranks=(1, 2), parameters=("w",), unattributed=True)
    failed = FailedEvent(type="ReplicasDiffer", message="m", traceback="t", step=4, facts=facts)
    assert to_json(failed)["facts"] == {
        "cause": "replica_mismatch",
        "ranks": [1, 2],
        "parameters": ["w"],
        "unattributed": True,
    }
    assert from_json("failed", to_json(failed), RANK_KINDS) == failed
