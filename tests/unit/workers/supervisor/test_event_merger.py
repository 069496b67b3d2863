"""The events of several ranks become one sequence in which no event stands twice."""

import time
from typing import Any

import pytest

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor.event_merger import EventMerger
from shardyard.workers.supervisor.gang_state import Repair


def incidents(merger: EventMerger) -> list[str]:
    return [event["data"]["message"] for event in merger.spool.take(0) if event["kind"] == "incident"]


def save(step: int, digest: str, *kept: int, again: bool = False) -> Any:
    data = {"step": step, "path": "/p", "bytes": 1, "digest": digest, "kept": list(kept) or None, "again": again}
    return {"seq": 1, "ts": 1.0, "kind": "checkpoint", "data": data}


def incident(message: str, step: int | None = None, **more: Any) -> Any:
    data = {"cause": "checkpoint_corrupt", "rank": None, "message": message, "step": step, **more}
    return {"seq": 1, "ts": 1.0, "kind": "incident", "data": data}


def test_each_incident_of_a_restore_is_emitted_once() -> None:
    merger = EventMerger(Spool(1 << 20), 2)
    for event in (incident("a"), incident("b"), incident("a"), incident("b", again=True)):
        merger.fact(event, 0)
    assert incidents(merger) == ["a", "b"]


def test_a_plan_is_emitted_again_only_if_it_is_another_one() -> None:
    """A gang that is repaired from a checkpoint measures its stages again. Plans have no step."""
    merger = EventMerger(Spool(1 << 20), 1)
    plans: list[Any] = [{"layout": "pipeline 2", "stage_blocks": blocks} for blocks in ([[0, 1]], [[0, 2]])]
    for data in (plans[0], plans[0], plans[1], plans[1], plans[0]):
        merger.fact({"seq": 1, "ts": 1.0, "kind": "plan", "data": data}, 0)
    assert [event["data"] for event in merger.spool.take(0)] == [plans[0], plans[1], plans[0]]


def test_incidents_that_differ_with_each_step_are_not_all_kept() -> None:
    """They are in every write of the journal."""
    merger = EventMerger(Spool(1 << 20), 1)
    merger.fact({"seq": 1, "ts": 1.0, "kind": "checkpoint", "data": {"step": 0, "path": "/p", "bytes": 1}}, 0)
    for number in range(500):
        merger.fact(incident(f"no save of step {number}"), 0)
    assert len(incidents(merger)) == 500 and len(merger.to_state().newest_facts) <= 300
    for number in (498, 499):
        merger.fact(incident(f"no save of step {number}"), 0)
    assert len(incidents(merger)) == 500 and merger.newest("checkpoint") == 0


def test_the_save_that_replaces_a_corrupt_checkpoint_is_reported_once() -> None:
    """A repair continued from step 10, and trains on to step 20 again. The catalogue has it as corrupt until then."""
    merger = EventMerger(Spool(1 << 20), 1)
    for step in (10, 20):
        merger.fact(save(step, "first"), 0)
    for _ in range(2):  # of the ranks' restores the merger emits one
        merger.fact(incident("step 20 is corrupt", 20), 0)
    assert merger.newest("checkpoint") == 10, "an emergency checkpoint of step 15 is written"
    merger.fact(save(10, "first", again=True), 0)
    for again in (False, True):
        merger.fact(save(20, "second", again=again), 0)
    emitted = [(event["kind"], event["data"]["step"]) for event in merger.spool.take(0)]
    assert emitted == [("checkpoint", 10), ("checkpoint", 20), ("incident", 20), ("checkpoint", 20)]
    merger.fact(incident("step 20 is corrupt, and so is its copy", 20), 0)
    merger.fact(incident("step 10 is corrupt", 10), 0)
    assert merger.newest("checkpoint") == 9
    merger.fact(save(20, "third"), 0)
    merger.fact(incident("step 40 is corrupt", 40), 0)
    merger.fact(incident("no step", None), 0)
    assert merger.newest("checkpoint") == 20


def test_a_checkpoint_that_could_not_be_read_does_not_count_as_the_newest() -> None:
    merger = EventMerger(Spool(1 << 20), 1)
    for step in (10, 20):
        merger.fact(save(step, "first", 10, step), 0)
    merger.fact(incident("no answer; trying again", cause="storage_unreachable"), 0)
    assert merger.newest("checkpoint") == 20
    merger.fact(incident("step 20 cannot be read", 20, cause="storage_unreachable"), 0)
    assert merger.newest("checkpoint") == 10
    merger.fact(save(15, "second", 15, 20), 0)
    assert merger.newest("checkpoint") == 15


def test_a_checkpoint_that_a_restore_reported_may_be_saved_again() -> None:
    """The next attempt begins with the last checkpoint, and saves its step with other files."""
    merger = EventMerger(Spool(1 << 20), 1)
    for again, digest in ((True, "a"), (True, "a"), (False, "b"), (False, "c"), (True, "b")):
        merger.fact(save(20, digest, again=again), 0)
    assert [event["data"]["digest"] for event in merger.spool.take(0)] == ["a", "b", "c"]


@pytest.mark.parametrize(("keep", "newest"), [(1, 60), (2, 70)])
def test_a_save_after_a_repair_from_an_older_snapshot_is_reported_again(keep: int, newest: int) -> None:
    """It has replaced the files, and pruned. The gang had saved steps 60 and 70, and continues from step 50 in memory."""
    merger = EventMerger(Spool(1 << 20), 1)
    first = [save(60, "a", 60), save(70, "b", *(60, 70)[-keep:])]
    second = [save(60, "c", *(60, 70)[:keep]), save(70, "d", *(60, 70)[-keep:])]
    for event in (*first, second[0]):
        merger.fact(event, 0)
    assert merger.newest("checkpoint") == newest, "an emergency checkpoint of an older step is refused"
    merger.fact(save(60, "a", 60, again=True), 0)  # of rank 0's latest events
    merger.fact(second[1], 0)
    assert merger.newest("checkpoint") == 70
    assert [event["data"]["digest"] for event in merger.spool.take(0)] == ["a", "b", "c", "d"]


def test_a_save_that_was_lost_with_its_rank_is_emitted_from_the_snapshot() -> None:
    """It was of a step that had been saved before. The events of the snapshot have saves that are known, too."""
    merger = EventMerger(Spool(1 << 20), 1)
    for event in (save(60, "a", 60), save(70, "b", 70)):
        merger.fact(event, 0)
    for _ in range(2):
        for event in (save(60, "a", 60, again=True), save(60, "c", 60, again=True)):
            merger.fact(event, 0)
    assert merger.newest("checkpoint") == 60
    assert [event["data"]["digest"] for event in merger.spool.take(0)] == ["a", "b", "c"]


def test_an_incident_waits_for_the_step_that_it_follows() -> None:
    merger = EventMerger(Spool(1 << 20), 1)
    merger.fact(incident("a", 1), 1)
    assert incidents(merger) == []
    merger.step(0, {"seq": 1, "ts": 1.0, "kind": "step", "data": {"step": 1, "step_s": 0.1, "loss": 2.0}})
    assert [event["kind"] for event in merger.spool.take(0)][-2:] == ["step", "incident"]


def test_a_programs_checkpoint_is_emitted_at_once_and_is_progress() -> None:
    merger = EventMerger(Spool(1 << 20), 2)
    for step in (100, 50, 50):  # a program that was started again may save a step again
        merger.of_program("checkpoint", {"step": step, "path": "/p", "bytes": 1}, 1.0)
    assert [event["data"]["step"] for event in merger.spool.take(0)] == [100, 50, 50]
    assert merger.newest_step == 100


def test_what_rank_0_could_not_deliver_is_emitted_from_its_snapshot_once() -> None:
    merger = EventMerger(Spool(1 << 20), 2)
    for rank in (0, 1):
        merger.step(rank, {"seq": 1, "ts": 1.0, "kind": "step", "data": {"step": 1, "step_s": 0.1, "loss": 2.0}})
    known = [("step", {"step": n, "step_s": 0.1, "loss": 2.0 / n}) for n in (1, 2)]
    for _ in range(2):
        merger.replay([*known, ("eval", {"step": 2, "loss": 1.5}), ("stopped", {"step": 2})])
    emitted = [(event["kind"], event["data"].get("step")) for event in merger.spool.take(0) if event["kind"] != "state"]
    assert emitted == [("step", 1), ("step", 2), ("eval", 2)]


@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_repair_is_reported_with_the_next_step(steps_before: int) -> None:
    """Also with the first of all: a rank had died while the ranks were built. The clock of the rank's node is hours behind."""
    merger = EventMerger(Spool(1 << 20), 1)
    for step in range(1, steps_before + 2):
        if step == steps_before + 1:
            merger.repair = Repair("rank_lost", 0, began=1.0, generation=2)
        merger.step(0, {"seq": step, "ts": 3.0, "kind": "step", "data": {"step": step, "step_s": 0.1, "loss": 2.0}})
    *_, repair, state, _ = merger.spool.take(0)
    assert (repair["kind"], repair["data"]["cause"], repair["data"]["generation"]) == ("repair", "rank_lost", 2)
    assert repair["data"]["step"] == steps_before + 1 and round(repair["ts"] - repair["data"]["seconds"]) == 1
    assert (state["data"]["state"], state["data"]["reason"]) == ("running", "repaired")
    assert merger.repair is None and merger.first_step_at == 3.0


def test_a_repair_takes_no_negative_time() -> None:
    """The supervisor that began it may have been on a node whose clock is ahead."""
    merger = EventMerger(Spool(1 << 20), 1)
    merger.repair = Repair("rank_lost", 0, began=time.time() + 3600.0, generation=2)
    merger.step(0, {"seq": 1, "ts": 3.0, "kind": "step", "data": {"step": 1, "step_s": 0.1, "loss": 2.0}})
    assert merger.spool.take(0)[0]["data"]["seconds"] == 0.0
