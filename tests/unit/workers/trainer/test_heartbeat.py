import subprocess
import sys
import threading
import time

from harness.patience import PATIENCE_S

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


def test_a_trainer_that_is_asked_by_a_signal_writes_its_main_threads_stack_alone() -> None:
    """To read those of threads that run would crash it, sooner or later."""
    script = """
import os, threading, time
from shardyard.workers.messages.rank_status import STACKS_SIGNAL
from shardyard.workers.trainer.heartbeat import listen_for_signals
def asks():
    os.kill(os.getpid(), STACKS_SIGNAL)
listen_for_signals()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
asks()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert " in asks" in done.stderr and "Thread 0x" not in done.stderr
