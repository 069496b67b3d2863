import asyncio
import json
import math

from harness.virtual_time import VirtualLoop, run_virtually
from hypothesis import given
from hypothesis import strategies as st

from shardyard.workers.messages.event import StepEvent, sanitize
from shardyard.workers.messages.event_buffer import Spool, Steps, merged


def test_sanitize_makes_strict_json() -> None:
    value = sanitize({"a": math.nan, 1: (math.inf, 2), "p": object, "n": None, "t": True})
    assert json.loads(json.dumps(value, allow_nan=False))["1"] == [None, 2]
    assert value["a"] is None and value["t"] is True and value["n"] is None


def test_a_spool_numbers_from_one_and_forgets_only_what_is_acknowledged() -> None:
    spool = Spool(1 << 20)
    for number in range(5):
        spool.add("step", {"step": number})
    assert [event["seq"] for event in spool.take(0)] == [1, 2, 3, 4, 5]
    assert [event["seq"] for event in spool.take(3)] == [4, 5]
    assert [event["seq"] for event in spool.take(0)] == [4, 5]
    assert [event["seq"] for event in spool.take(3, most=1)] == [4]
    assert spool.take(5) == [] and spool.last == 5
    assert spool.add("step", {})["seq"] == 6


def test_an_answer_is_no_longer_than_it_must_be() -> None:
    spool = Spool(1 << 20)
    for size in (1000, 10, 10, 5000):
        spool.add("trace", {"spans": "x" * size})
    assert [event["seq"] for event in spool.take(0, most_bytes=2000)] == [1, 2, 3]
    assert [event["seq"] for event in spool.take(0, most_bytes=100)] == [1]  # one at least
    assert [event["seq"] for event in spool.take(3, most_bytes=2000)] == [4]


def test_a_spool_goes_on_where_another_one_ended() -> None:
    first = Spool(1 << 20)
    for number in range(5):
        first.add("step", {"step": number})
    first.take(2)
    assert first.acknowledged == 2 and [event["seq"] for event in first.newer(3)] == [4, 5]
    second = Spool(1 << 20)
    second.refill(first.newer(0), first.last)
    assert (second.acknowledged, second.last, second.take(0)) == (2, 5, first.take(0))
    assert second.add("step", {})["seq"] == 6
    assert second.take(6) == [] and second.acknowledged == 6 and not second.newer(0)


def test_a_full_spool_has_room_again_after_an_acknowledgement() -> None:
    spool = Spool(1000)
    while not spool.full:
        spool.add("log", {"lines": ["x" * 100]})
    assert spool.half_full

    async def wait() -> tuple[bool, bool]:
        before = await spool.room(0.01)
        waiting = asyncio.create_task(spool.room(5.0))
        await asyncio.sleep(0)
        spool.take(spool.last)
        return before, await waiting

    assert asyncio.run(wait()) == (False, True)


def test_a_wait_ends_with_an_event_and_lingers_unless_it_is_urgent() -> None:
    async def work(loop: VirtualLoop) -> None:
        spool = Spool(1 << 20)
        loop.call_later(1.0, spool.add, "step", {})
        await spool.wait(0, wait_s=30.0)
        assert (spool.last, loop.time()) == (1, 1.0)

        loop.call_later(2.0, spool.add, "step", {})
        await spool.wait(1, wait_s=30.0, linger_s=5.0)
        assert (spool.last, loop.time()) == (2, 8.0)

        loop.call_later(3.0, lambda: spool.add("failed", {}, urgent=True))
        spool.add("step", {})
        await spool.wait(2, wait_s=30.0, linger_s=30.0)
        assert (spool.last, loop.time()) == (4, 11.0)

        await spool.wait(4, wait_s=0.0)
        assert spool.take(4) == [] and loop.time() == 11.0

    run_virtually(work)


def test_a_step_is_merged_once_all_ranks_have_reported_it() -> None:
    steps = Steps(3)
    assert steps.add(2, {"step": 1, "step_s": 3.0}) == []
    assert steps.add(0, {"step": 1, "step_s": 1.0, "loss": 5.0, "logged": {"aux": 0.5}}) == []
    assert steps.add(0, {"step": 2, "step_s": 1.0, "loss": 4.0}) == []
    (ranks,) = steps.add(1, {"step": 1, "step_s": 2.0})
    record = merged(ranks)
    assert record == StepEvent(
        **{"step": 1, "step_s": 1.0, "loss": 5.0, "logged": {"aux": 0.5}, "slowest_rank": 2},
        step_s_min=1.0,
        step_s_median=2.0,
        step_s_max=3.0,
    )
    assert [rest[0]["step"] for rest in steps.rest()] == [2]
    assert steps.rest() == []


def test_what_only_followers_have_reported_is_no_step_of_the_job() -> None:
    steps = Steps(2)
    steps.add(1, {"step": 1, "step_s": 1.0})
    assert steps.rest() == []


def test_steps_are_whole_without_a_rank_that_is_gone_until_the_end() -> None:
    steps = Steps(3)
    for step in (1, 2):
        for rank in (0, 1):
            assert steps.add(rank, {"step": step, "step_s": 1.0, "loss": 4.0}) == []
    steps.add(2, {"step": 3, "step_s": 1.0})
    assert [sorted(ranks) for ranks in steps.leave(2)] == [[0, 1], [0, 1]]
    assert steps.add(0, {"step": 3, "step_s": 1.0}) == []
    assert [sorted(ranks) for ranks in steps.add(1, {"step": 3, "step_s": 1.0})] == [[0, 1, 2]], "it had reported this"
    steps.rest()
    assert [steps.add(rank, {"step": 4, "step_s": 1.0}) for rank in (0, 1)] == [[], []]


def test_a_rank_that_never_reports_fills_no_memory() -> None:
    steps = Steps(2, most_open=3)
    reported = [
        ranks[0]["step"] for step in range(1, 11) for ranks in steps.add(0, {"step": step, "step_s": 1, "loss": 0})
    ]
    assert reported == list(range(1, 8))


@given(st.dictionaries(st.integers(0, 64), st.floats(0, 1e6), min_size=1))
def test_the_slowest_rank_is_the_lowest_with_the_longest_time(times: dict[int, float]) -> None:
    record = merged({rank: {"step": 1, "step_s": seconds} for rank, seconds in times.items()})
    assert times[record.slowest_rank] == record.step_s_max == max(times.values())
    assert record.slowest_rank == min(rank for rank in times if times[rank] == record.step_s_max)
    assert record.step_s_min <= record.step_s_median <= record.step_s_max


def test_the_slowest_rank_is_the_one_that_worked_longest_where_that_is_known() -> None:
    own = {0: 0.1, 1: 0.3, 2: 0.2}
    record = merged({r: {"step": 1, "step_s": 1.0 - r / 10, "busy_s": s, "part": 0} for r, s in own.items()})
    assert record.slowest_rank == 1 and record.step_s_max == 1.0
