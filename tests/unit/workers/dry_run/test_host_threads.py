"""A thread follows the one that started it, and is followed by who joins it or asks for its result."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from shardyard.workers.dry_run.host_threads import followed
from shardyard.workers.dry_run.vector_clocks import Actor, host


def act(times: list[tuple[Actor, int]]) -> None:
    times.append((host(), host().tick()))


def test_joining_orders() -> None:
    times: list[tuple[Actor, int]] = []
    with followed(nullcontext):
        before = host().tick()
        thread = threading.Thread(target=act, args=(times,))
        thread.start()
        while thread.is_alive():
            pass
        [(actor, time)] = times
        assert actor is not host() and actor.comes_after(host(), before)
        assert not host().comes_after(actor, time)
        thread.join()
        assert host().comes_after(actor, time)


def test_results_order() -> None:
    times: list[tuple[Actor, int]] = []
    with followed(nullcontext), ThreadPoolExecutor(1) as pool:
        first, before = pool.submit(act, times), host().tick()
        second = pool.submit(act, times)
        second.result()
        assert all(host().comes_after(actor, time) for actor, time in times)
        assert times[1][0].comes_after(host(), before) and first.done()
    assert ThreadPoolExecutor.submit.__module__ == "concurrent.futures.thread"
