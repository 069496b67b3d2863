import pytest

from shardyard.service.policies.warm_workers import Shortage, Workers, shortage_of

CORES, SLOTS, MOST = 2, 8, 10


@pytest.mark.parametrize(
    ("workers", "shortage"),
    [
        (Workers(idle=0, starting=0, ranks=0), Shortage(missing=MOST, ask=2)),
        (Workers(idle=0, starting=2, ranks=0), Shortage(missing=MOST, ask=0)),
        (Workers(idle=MOST - 1, starting=0, ranks=0), Shortage(missing=1, ask=1)),
        (Workers(idle=MOST, starting=0, ranks=0), Shortage(missing=0, ask=0)),
        (Workers(idle=MOST - 5, starting=0, ranks=4), Shortage(missing=0, ask=0)),
        (Workers(idle=0, starting=0, ranks=4), Shortage(missing=5, ask=1)),
        (Workers(idle=0, starting=1, ranks=4), Shortage(missing=5, ask=0)),
        (Workers(idle=0, starting=0, ranks=1), Shortage(missing=MOST, ask=1)),
        (Workers(idle=3, starting=0, ranks=64), Shortage(missing=MOST - 3, ask=1)),
    ],
    ids=[
        "fresh: one for each core at a time",
        "those that start are waited for",
        "no more than are missing",
        "at rest, enough for two gangs of four",
        "the second gang's are there while the first one trains",
        "beside ranks on all cores, for one gang more of as many, one at a time",
        "the one that starts is waited for",
        "beside a small gang as at rest",
        "never more than the most",
    ],
)
def test_workers_are_prepared_a_few_at_a_time(workers: Workers, shortage: Shortage) -> None:
    assert shortage_of(workers, SLOTS, MOST, CORES) == shortage


def test_where_none_may_idle_none_is_asked_for() -> None:
    assert shortage_of(Workers(0, 0, 4), SLOTS, most=0, cores=CORES) == Shortage(missing=0, ask=0)


def test_a_node_with_little_room_has_few() -> None:
    assert shortage_of(Workers(0, 0, 0), slots=1, most=MOST, cores=1) == Shortage(missing=4, ask=1)
