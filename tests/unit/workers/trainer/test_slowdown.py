import time

from shardyard.workers.trainer.slowdown import Slowdown


def test_a_slow_rank_computes_longer_until_its_time_is_over() -> None:
    slowdown = Slowdown()
    slowdown.begin(0.02, 1000.0)
    began, computed = time.monotonic(), time.thread_time()
    slowdown.apply()
    assert time.monotonic() - began >= 0.02 and time.thread_time() > computed
    slowdown.begin(3600.0, 0.0)
    slowdown.apply()  # returns at once, or this test never ends
    assert time.monotonic() - began < 600
