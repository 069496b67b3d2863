"""What ends the calls of the blocking client that run side by side."""

import threading
from concurrent.futures import CancelledError

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client._sync.runtime import for_each, stay


def test_after_an_error_the_others_end_where_they_look() -> None:
    """A download looks after each block: else Ctrl-C would wait for gigabytes."""
    started, ended = threading.Barrier(2), list[str]()

    def do(name: str) -> None:
        started.wait(PATIENCE_S)
        if name == "fails":
            raise KeyboardInterrupt
        try:
            while True:
                stay()
        except CancelledError:
            ended.append(name)
            raise

    with pytest.raises(KeyboardInterrupt):
        for_each(do, ["long", "fails", "never begun"], at_once=2)
    assert ended == ["long"]
    stay()


def test_all_things_are_done_and_nothing_is_looked_for_outside() -> None:
    done = list[int]()

    def do(thing: int) -> None:
        stay()
        done.append(thing)

    for_each(do, [1, 2, 3], at_once=2)
    assert sorted(done) == [1, 2, 3]
