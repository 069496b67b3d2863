import json
import os
from pathlib import Path

import pytest
from harness.trainer_ends import trainer_process

from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.rank.rank_orders import RankOrders
from shardyard.workers.rank.trainer_events import TrainerEvents


async def test_what_a_rank_did_on_request_is_known_after_its_trainers_end_and_nothing_else_begins(
    tmp_path: Path,
) -> None:
    """Its supervisor may ask again. Without an answer it would send the command to the next actor, too."""
    command = Exec("x1", 0, ("true",), 60).to_json()
    profile = Profile("p1", "stacks", 0, 1, str(tmp_path), 1).to_json()
    orders = RankOrders(TrainerEvents(), "cpu", "", {})
    with trainer_process() as (trainer, _):
        assert await orders.act("exec", command, None) is None
        assert await orders.act("exec", command, trainer) is None, "the trainer is still to be forked"
        trainer.pid = os.getpid()
        ended = await orders.act("exec", command, trainer)
        taken = await orders.act("profile", profile, trainer)
        assert ended is not None and ended["status"] == 0 and taken is not None and "may have 1" in taken["message"]
        trainer.gone.set()
        again = await orders.act("exec", command, trainer)
        assert again is not None and again | {"at": 0} == ended | {"at": 0}
        assert await orders.act("profile", profile, trainer) == taken
        assert await orders.act("exec", command | {"id": "x2"}, trainer) is None
        assert await orders.act("profile", profile | {"id": "p2"}, trainer) is None


async def test_the_environment_that_a_command_prints_has_the_nodes_own_secrets_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "node-storage-key-123456")
    events = TrainerEvents()
    orders = RankOrders(events, "cpu", "", {})
    with trainer_process() as (trainer, _):
        trainer.pid = os.getpid()
        await orders.act("exec", Exec("x1", 0, ("env",), 60).to_json(), trainer)
    lines = [line for event in events.spool.take(0) for line in event["data"]["lines"]]
    assert "AWS_SECRET_ACCESS_KEY=***" in lines and "node-storage-key-123456" not in json.dumps(lines)
