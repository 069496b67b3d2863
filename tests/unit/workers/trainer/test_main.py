"""A trainer's control socket before it has its orders, and orders that it cannot read."""

import json
import os
import socket
from typing import Any

import pytest

from shardyard.version import __version__
from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.trainer.main import Link, main

ORDERS = {"run": {}, "coords": {}, "secrets": []}


def answered(*messages: dict[str, object]) -> tuple[list[dict[str, object]], int]:
    """What a trainer sends that gets these messages at once, and its status: 7 if it got its orders."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if (child := os.fork()) == 0:
            os._exit(7 if Link(theirs).orders() == ORDERS else 9)
        theirs.close()
        # Together: one that ends after the first message would be gone before the second is sent.
        ours.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        ours.shutdown(socket.SHUT_WR)
        _, status = os.waitpid(child, 0)
        sent = ours.makefile("rb").read().splitlines()
    return [json.loads(line) for line in sent], os.waitstatus_to_exitcode(status)


def test_orders_may_come_after_questions() -> None:
    assert answered({"examine": True}, ORDERS) == ([], 7)


def test_one_that_is_to_end_before_it_has_orders_ends_well() -> None:
    sent, status = answered({"stop": "save"}, ORDERS)
    assert ([one["kind"] for one in sent], status) == (["stopped", "done"], 0)


def test_one_whose_actor_is_gone_ends() -> None:
    assert answered({"examine": True}) == ([], 0)


COORDS = RankAssignment(0, 1, 0, "127.0.0.1", 4242).to_json()
TRAIN = {"steps": 1, "global_batch": 1}
RUN = {"job": "job-1", "train": TRAIN, "checkpoints": "file:///c", "cache": "/c"}


@pytest.mark.parametrize(
    ("run", "coords", "why"),
    [
        (RUN | {"train": TRAIN | {"colour": "blue"}}, COORDS, "(train.colour: Extra inputs are not permitted)"),
        (RUN, COORDS | {"colour": "blue"}, "unexpected keyword argument 'colour'"),
    ],
)
def test_orders_of_another_version_are_no_exception_of_the_job(
    run: dict[str, Any], coords: dict[str, Any], why: str
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(json.dumps({"run": run, "coords": coords}).encode() + b"\n")
        if (child := os.fork()) == 0:
            os._exit(main(theirs, {}))
        theirs.close()
        (line,) = ours.makefile("rb").read().splitlines()
        _, status = os.waitpid(child, 0)
    event = json.loads(line)
    assert (os.waitstatus_to_exitcode(status), event["kind"]) == (1, "failed")
    assert event["data"]["facts"] == {"cause": "other_version"}
    assert event["data"]["message"].startswith(f"this node has Shardyard {__version__}, which cannot read")
    assert why in event["data"]["message"]
