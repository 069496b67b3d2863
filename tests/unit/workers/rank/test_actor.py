import contextlib
import os
import socket

import pytest
from harness.ras_server import HERE, communicator, process, ras_server, status

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


async def test_an_actor_asks_about_the_job_of_its_own_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names its process as NCCL does: by its id, and an address of its node."""
    fork, server = socket.socketpair()
    control, _ = socket.socketpair()
    with server, _, contextlib.closing(TrainerProcess(fork, control, *os.pipe(), notifier=socket.socket())) as trainer:
        rank = Rank("cuda")
        rank.trainer = trainer
        assert await rank.ask_nccl() is None, "it is still to be forked"
        trainer.pid = os.getpid()
        trainer.gone.set()  # it answers nothing
        facts = await rank.examine()
        assert facts["pid"] == os.getpid() and HERE in facts["hosts"]
        async with ras_server(
            status(communicator("0xa", process(0, 1))), status(communicator("0xb", process(0, os.getpid())))
        ) as ras:
            monkeypatch.setenv("NCCL_RAS_ADDR", ras.env["NCCL_RAS_ADDR"])
            report = await rank.ask_nccl()
        assert report is not None and report.communicators == 1 and len(ras.received) == 2
