import pytest

from shardyard.workers.trainer import slowdown
from shardyard.workers.trainer.slowdown import Slowdown

#: Seconds that pass with each look at the clock; a power of two, so that sums are exact.
TICK = 1 / 1024


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += TICK
        return self.now


def test_a_slow_rank_computes_longer_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(slowdown, "time", clock)
    found = Slowdown()
    found.begin(20 * TICK, 1000.0)
    for _ in range(3):
        began = clock.now
        found.apply()
        assert clock.now - began == TICK + 20 * TICK, "a look whether it is slow, and the work"
    found.begin(3600.0, 0.0)
    began = clock.now
    found.apply()
    assert clock.now - began == TICK, "its time is over"
