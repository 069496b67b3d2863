import asyncio

import pytest

from shardyard.workers.rank import lease
from shardyard.workers.rank.lease import Lease


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened at the lease's end, in order; this process stays."""
    happened: list[str] = []
    monkeypatch.setattr(lease, "leave", lambda: happened.append("left"))
    return happened


async def expired(one: Lease) -> None:
    assert one._watch is not None
    await one._watch


async def test_the_trainer_ends_before_the_process(ended: list[str]) -> None:
    one = Lease(0.01, lambda: ended.append("trainer killed"))
    one.begin()
    one.begin()
    await expired(one)
    assert ended == ["trainer killed", "left"]


async def test_each_renewal_is_worth_a_whole_lease(ended: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds
        if len(slept) == 1:
            now[0] -= 4
            one.renew()
            now[0] += 4

    monkeypatch.setattr(lease.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    one = Lease(10, lambda: None)
    one.begin()
    await expired(one)
    assert slept == [10, 6] and ended == ["left"]


def test_nothing_ends_before_it_begins(ended: list[str]) -> None:
    Lease(0.0, lambda: ended.append("trainer killed")).renew()
    assert ended == []
