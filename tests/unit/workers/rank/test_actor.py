import contextlib
import os
import socket

from shardyard.workers.rank.actor import Rank
from shardyard.workers.rank.trainer_process import TrainerProcess
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.hang import hung


async def test_a_trainer_that_its_fork_server_is_still_to_fork_is_no_hang() -> None:
    """On a node that is new to a gang the import may take longer than `policy.hang_timeout_s`."""
    fork, server = socket.socketpair()
    control, _ = socket.socketpair()
    with server, _, contextlib.closing(TrainerProcess(fork, control, *os.pipe(), notifier=socket.socket())) as trainer:
        rank = Rank("cpu")
        rank.trainer = trainer
        found = Examination.of(0, await rank.examine())
        assert not hung([found], quick_s=0.0, slow_s=600.0)
        assert hung([found], quick_s=0.0, slow_s=0.0), "not for ever"
        trainer.pid = os.getpid()  # it lives and says nothing
        assert hung([Examination.of(0, await rank.examine())], quick_s=600.0, slow_s=600.0)
