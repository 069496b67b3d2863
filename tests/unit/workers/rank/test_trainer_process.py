"""The actor's side of a trainer: how it asks a trainer that does not answer. Its other sides: test_actor.py, test_trainer_events.py."""

import signal
import subprocess
import sys

from harness.control_plane import until
from harness.patience import PATIENCE_S
from harness.trainer_ends import trainer_process

from shardyard.workers.process_stat import state_of

#: Another thread of it might take a signal, too.
TRAINER = """
import threading, time
from shardyard.workers.trainer.heartbeat import listen_for_signals
def waits_in_here():
    print("ready", flush=True)
    time.sleep(600)
listen_for_signals()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
waits_in_here()
"""


def test_a_stopped_trainer_writes_its_main_threads_stack() -> None:
    with (
        trainer_process() as (mine, _),
        subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as trainer,
    ):
        try:
            assert trainer.stdout is not None and trainer.stderr is not None
            assert trainer.stdout.readline() == b"ready\n"
            trainer.send_signal(signal.SIGSTOP)
            until(lambda: state_of(trainer.pid) == "T", PATIENCE_S, "the trainer to stop")
            mine.write_stacks()  # it is not forked yet
            assert state_of(trainer.pid) == "T"
            mine.pid = trainer.pid
            mine.write_stacks()
            text = trainer.stderr.readline() + trainer.stderr.readline()
        finally:
            trainer.kill()
    assert b"most recent call first" in text and b"waits_in_here" in text
