"""A trainer's control socket before it has its orders."""

import json
import os
import socket

from shardyard.workers.trainer.main import Link

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
