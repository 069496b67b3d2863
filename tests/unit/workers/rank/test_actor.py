import contextlib
import os
import socket
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S
from harness.ras_server import HERE, communicator, process, ras_server, status

from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.rank import nccl_ras
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
            monkeypatch.setattr(nccl_ras, "GREETING_S", PATIENCE_S)  # this process may wait for a core
            report = await rank.ask_nccl()
        assert report is not None and report.communicators == 1 and len(ras.received) == 2


async def test_what_a_rank_did_on_request_is_known_after_its_trainers_end_and_nothing_else_begins(
    tmp_path: Path,
) -> None:
    """Its supervisor may ask again. Without an answer it would send the command to the next actor, too."""
    fork, server = socket.socketpair()
    control, _ = socket.socketpair()
    command = Exec("x1", 0, ("true",), 60).to_json()
    profile = Profile("p1", "stacks", 0, 1, str(tmp_path), 1).to_json()
    with server, _, contextlib.closing(TrainerProcess(fork, control, *os.pipe(), notifier=socket.socket())) as trainer:
        rank = Rank("cpu")
        rank.trainer = trainer
        trainer.pid = os.getpid()
        ended = await rank.act("exec", command)
        taken = await rank.act("profile", profile)
        assert ended is not None and ended["status"] == 0 and taken is not None and "may have 1" in taken["message"]
        trainer.gone.set()
        again = await rank.act("exec", command)
        assert again is not None and again | {"at": 0} == ended | {"at": 0}
        assert await rank.act("profile", profile) == taken
        assert await rank.act("exec", command | {"id": "x2"}) is None
        assert await rank.act("profile", profile | {"id": "p2"}) is None
