import time

from shardyard.workers.trainer.slowdown import Slowness


def test_a_slow_rank_computes_longer_until_its_time_is_over() -> None:
    slowness = Slowness()
    slowness.begin(0.02, 1000.0)
    began, computed = time.monotonic(), time.thread_time()
    slowness.suffer()
    assert time.monotonic() - began >= 0.02 and time.thread_time() > computed
    slowness.begin(3600.0, 0.0)
    slowness.suffer()  # returns at once, or this test never ends
    assert time.monotonic() - began < 600
