import sys
import threading
import time

from shardyard.workers.thread_stacks import called
from shardyard.workers.trainer.heartbeat import Heartbeat


def test_a_status_says_where_the_training_thread_is() -> None:
    heartbeat = Heartbeat()
    heartbeat.update("step", 7)
    status = heartbeat.status()
    assert (status["phase"], status["step"]) == ("step", 7) and status["idle_s"] >= 0
    assert status["collectives"] == [] and isinstance(status["stacks"], list)
    before = heartbeat.at
    heartbeat.update("step", 8)
    assert heartbeat.at >= before and heartbeat.step == 8


def test_a_status_says_which_function_of_c_a_thread_is_in() -> None:
    """As `tolist` on a GPU, `acquire` waits without a frame of its own."""
    lock, begun = threading.Lock(), threading.Event()
    lock.acquire()

    def wait() -> None:
        begun.set()
        lock.acquire()

    thread = threading.Thread(target=wait, name="waits")
    thread.start()
    begun.wait()
    while called(sys._current_frames()[thread.ident or 0]) != "acquire":
        time.sleep(0.001)
    (stack,) = [stack for stack in Heartbeat().status()["stacks"] if stack["thread"] == "waits"]
    lock.release()
    thread.join()
    assert stack["call"] == "acquire" and stack["frames"][-1].endswith("in wait")
