"""A thread follows the one that started it, and is followed by who joins it or asks for its result."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from shardyard.strategies.turns import Turns
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


def test_a_semaphore_orders_who_waits_for_it_as_long_as_it_takes() -> None:
    times: list[tuple[Actor, int]] = []
    released, looked_at = threading.Semaphore(0), threading.Semaphore(0)

    def acts() -> None:
        act(times)
        released.release()
        looked_at.release()

    with followed(nullcontext):
        thread = threading.Thread(target=acts)
        thread.start()
        while thread.is_alive():
            pass
        [(actor, time)] = times
        assert looked_at.acquire(timeout=0) and not host().comes_after(actor, time)
        assert released.acquire() and host().comes_after(actor, time)
        thread.join()
    assert threading.Semaphore.acquire.__module__ == "threading"


def test_two_functions_that_run_by_turns_are_ordered_by_them() -> None:
    turns, times = Turns(), []

    def acts() -> None:
        for _ in range(3):
            assert all(host().comes_after(actor, time) for actor, time in times)
            act(times)
            turns.yield_turn()

    with followed(nullcontext), ThreadPoolExecutor(1) as pool:
        turns.run(acts, acts, (), pool)
    assert len({actor for actor, _ in times}) == 2 and len(times) == 6
