"""Stacks as plain data; `tests/unit/workers/trainer/test_heartbeat.py` has the function that a frame calls."""

import threading

from shardyard.workers.thread_stacks import stacks


def test_frames_outside_a_file_are_left_out() -> None:
    begun, end = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        end.wait()

    thread = threading.Thread(target=wait, name="waits")
    thread.start()
    begun.wait()
    (whole,) = [stack["frames"] for stack in stacks() if stack["thread"] == "waits"]
    (inner,) = [stack["frames"] for stack in stacks({__file__}) if stack["thread"] == "waits"]
    end.set()
    thread.join()
    assert any("in wait" in frame and __file__ in frame for frame in whole)
    assert inner and not any(__file__ in frame for frame in inner)
