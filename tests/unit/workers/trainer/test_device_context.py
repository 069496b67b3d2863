"""A trainer of a GPU makes its context while it waits for its orders, and a failure of that is reported by the training."""

import subprocess
import sys
import threading

import pytest

from shardyard.workers.messages.rank_status import BACKGROUND
from shardyard.workers.trainer.device_context import begin_context

GPU = {"CUDA_VISIBLE_DEVICES": "GPU-1234"}

#: Its orders are sent by what begins the context: a trainer that reads them first would wait for ever.
TRAINER = """
import socket
from shardyard.workers.trainer import main

control, actor = socket.socketpair()


def begin(entry, env):
    print("begun")
    actor.sendall(b'{"run": {}, "coords": {}}\\n')


main.begin_context = begin
main.main(control, {})
print(actor.recv(1 << 16).decode())
"""


def test_the_trainer_goes_on_while_the_context_is_made() -> None:
    goes_on, made = threading.Event(), list[str]()

    def make() -> None:
        goes_on.wait()
        made.append(threading.current_thread().name)

    thread = begin_context("", GPU, make)
    assert thread is not None and thread.daemon and made == []
    goes_on.set()
    thread.join()
    assert made[0].startswith(BACKGROUND), "a hang's diagnosis leaves its stack out"


def test_an_error_is_left_to_the_training() -> None:
    def make() -> None:
        raise RuntimeError("CUDA error: out of memory")

    thread = begin_context("", GPU, make)
    assert thread is not None
    thread.join()


@pytest.mark.parametrize(
    ("entry", "env"),
    [("", {}), ("", {"CUDA_VISIBLE_DEVICES": ""}), ("module:function", GPU)],
    ids=["no variable", "a CPU's rank", "a function of the user's own"],
)
def test_no_context_is_made_where_none_is_sure_to_be_used(entry: str, env: dict[str, str]) -> None:
    made = list[int]()
    assert begin_context(entry, env, lambda: made.append(1)) is None and made == []


def test_a_trainer_begins_it_before_it_has_orders() -> None:
    command = [sys.executable, "-c", TRAINER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    begun, event = done.stdout.splitlines()[:2]
    assert begun == "begun" and '"failed"' in event, done.stderr
