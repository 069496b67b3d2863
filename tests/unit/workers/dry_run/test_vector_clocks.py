"""An actor knows what it did itself and what it followed, and nothing that came later."""

import threading

from shardyard.workers.dry_run.vector_clocks import Actor, host, host_of


def test_what_was_followed_is_over_and_what_came_later_is_not() -> None:
    first, second = Actor("first"), Actor("second")
    before = first.tick()
    second.follow(first.clock)
    after = first.tick()
    assert second.comes_after(first, before) and not second.comes_after(first, after)
    assert not first.comes_after(second, second.tick())


def test_order_passes_on() -> None:
    first, second, third = Actor("first"), Actor("second"), Actor("third")
    time = first.tick()
    second.follow(first.clock)
    third.follow(second.clock)
    assert third.comes_after(first, time)


def test_a_thread_without_an_actor_counts_as_the_main_one() -> None:
    found = []
    own = threading.Thread(target=lambda: found.append(host()))
    own_actor = host_of(own)
    for thread in (threading.Thread(target=lambda: found.append(host())), own):
        thread.start()
        thread.join()
    assert found == [host(), own_actor] and own_actor is not host()
