"""A process that ends is noticed by its connection alone, and the others' requests arrive as before."""

import threading
from typing import Any

import pytest
from harness.ranks import group, spawn

from shardyard.strategies.collectives import send
from shardyard.strategies.data_parallel import inbox
from shardyard.strategies.data_parallel.inbox import Gone, Inbox
from shardyard.strategies.data_parallel.stale_messages import REQUEST, Request

SERVER, FEW = 3, 5


def run(rank: int, world: int, port: int) -> Any:
    """Rank 1 ends after two requests, as a process ends that is killed; the others send some more, and their last ones."""
    import torch.distributed as dist

    group(rank, world, port)
    whole = dist.group.WORLD
    assert whole is not None
    if rank == SERVER:
        return receive(whole)
    for clock in range(2 if rank == 1 else FEW):
        send(Request(rank, clock).numbers(), SERVER, whole, REQUEST)()
    if rank != 1:
        send(Request(rank, FEW, ends=True).numbers(), SERVER, whole, REQUEST)()
    return None


def receive(whole: Any) -> Any:
    box = Inbox(range(SERVER), whole)
    found = [box.take() for _ in range(2 + 2 * (FEW + 1) + 1)]
    box.join()
    threads = [thread.name for thread in threading.enumerate() if "requests" in thread.name]
    box.give_up(2)
    found.append(box.take())
    return [(one.worker, getattr(one, "clock", "gone"), getattr(one, "closed", None)) for one in found], threads


def test_requests_arrive_in_order_and_the_end_of_a_process_does_too() -> None:
    *_, (found, threads) = spawn(run, SERVER + 1, until_all=False)
    assert [clock for worker, clock, _ in found if worker == 1] == [0, 1, "gone"]
    assert [clock for worker, clock, _ in found if worker == 0] == [*range(FEW), FEW]
    assert [clock for worker, clock, _ in found if worker == 2] == [*range(FEW), FEW, "gone"]
    assert [closed for _, clock, closed in found if clock == "gone"] == [True, False]
    assert threads == [], "each ended with its worker"


def test_a_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "WAIT_S", 0.05)
    box = Inbox((), None)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="no worker has sent a request"):
        box.take()
    box.give_up(7)
    assert box.take() == Gone(7, "it was given up", closed=False)
