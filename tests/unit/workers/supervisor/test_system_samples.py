"""The ranks' samples become one event."""

from shardyard.workers.supervisor import system_samples
from shardyard.workers.supervisor.system_samples import SystemSamples


def test_an_event_is_due_when_all_ranks_have_reported() -> None:
    samples = SystemSamples(2)
    assert samples.take(1, "a", {"rank": {"cpu": 50.0}}) == []
    (event,) = samples.take(0, "a", {"rank": {"cpu": 99.0, "memory": 7.0}, "node": {"cpu": 20.0}})
    assert event.nodes == {"a": {"cpu": 20.0}}
    assert event.ranks == {"cpu": (99.0, 50.0), "memory": (7.0, None)}
    assert samples.flush() == []


def test_a_rank_that_reports_again_does_not_wait_for_one_that_hangs() -> None:
    samples = SystemSamples(2)
    samples.take(0, "a", {"rank": {"cpu": 1.0}})
    (event,) = samples.take(0, "a", {"rank": {"cpu": 2.0}})
    assert event.ranks == {"cpu": (1.0, None)}
    (rest,) = samples.flush()
    assert rest.ranks == {"cpu": (2.0, None)}


def test_one_rank_alone_is_an_event_each_time() -> None:
    samples = SystemSamples(1)
    for _ in range(2):
        (event,) = samples.take(0, "a", {"rank": {}, "node": {"cpu": 3.0}})
        assert (event.nodes, event.ranks) == ({"a": {"cpu": 3.0}}, {})


def test_names_that_no_rank_may_have_and_ranks_of_huge_gangs_are_left_out() -> None:
    samples = SystemSamples(1)
    assert samples.take(0, None, {"rank": {"mood": 1.0}})[0].ranks == {}
    huge = SystemSamples(system_samples.MOST_RANKS + 1)
    huge.take(0, "a", {"rank": {"cpu": 1.0}, "node": {"cpu": 2.0}})
    (event,) = huge.flush()
    assert (event.ranks, event.nodes) == ({}, {"a": {"cpu": 2.0}})


def test_gpus_are_reported_by_node_in_the_first_of_six_events() -> None:
    samples = SystemSamples(2)
    events = []
    for number in range(7):
        use = {"gpu_utilization": float(number), "gpu_temperature": 60.0}
        samples.take(0, "a", {"rank": use, "gpu": "3", "node": {"cpu": 1.0}})
        events += samples.take(1, "b", {"rank": {"cpu": 5.0}, "gpu": "0"})
    assert events[0].nodes == {"a": {"cpu": 1.0}, "a/3": {"gpu_utilization": 0.0}}
    assert [one.nodes.keys() for one in events[1:6]] == [{"a"}] * 5
    assert events[6].nodes["a/3"] == {"gpu_utilization": 6.0}
