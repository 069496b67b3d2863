"""A trainer's control socket before it has its orders, and orders that it cannot read."""

import json
import os
import socket
import sys
from typing import Any

import pytest

from shardyard.version import __version__
from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.trainer.main import MAX_TEXT, Link, main

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
    data = failed(run, coords)
    assert data["facts"] == {"cause": "other_version"}
    assert data["message"].startswith(f"this node has Shardyard {__version__}, which cannot read")
    assert why in data["message"]


def failed(run: dict[str, Any], coords: dict[str, Any], entry: str = "") -> dict[str, Any]:
    """The event of a trainer with these orders, whose only event it is."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(json.dumps({"run": run, "coords": coords}).encode() + b"\n")
        if (child := os.fork()) == 0:
            try:
                os._exit(main(theirs, {}, entry))
            finally:
                os._exit(9)
        theirs.close()
        (line,) = ours.makefile("rb").read().splitlines()
        _, status = os.waitpid(child, 0)
    event = json.loads(line)
    assert (os.waitstatus_to_exitcode(status), event["kind"]) == (1, "failed")
    data: dict[str, Any] = event["data"]
    return data


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def without_words(*_: Any) -> None:
    raise Wordless


def after_closing_its_log(*_: Any) -> None:
    sys.stderr.close()
    raise KeyError("this")


def at_length(*_: Any) -> None:
    raise ValueError("a first line\n" * MAX_TEXT + "the last line")


def test_an_exception_is_reported_whatever_its_text_and_the_log_do() -> None:
    data = failed(RUN, COORDS, f"{__name__}:{without_words.__name__}")
    assert (data["type"], data["message"]) == ("Wordless", "<exception str() failed>")
    data = failed(RUN, COORDS, f"{__name__}:{after_closing_its_log.__name__}")
    assert (data["type"], data["message"]) == ("KeyError", "'this'")


def test_the_last_lines_of_a_long_message_are_reported() -> None:
    data = failed(RUN, COORDS, f"{__name__}:{at_length.__name__}")
    assert MAX_TEXT - 20 < len(data["message"]) <= MAX_TEXT
    assert data["message"].startswith("a first line\n") and data["message"].endswith("\nthe last line")
