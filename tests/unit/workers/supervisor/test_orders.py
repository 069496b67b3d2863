"""An order is written before its arrival is confirmed, and executed and reported once."""

import pytest

from shardyard.workers.supervisor import orders
from shardyard.workers.supervisor.orders import OrderQueue


async def test_an_order_is_written_before_its_arrival_is_confirmed() -> None:
    written: list[list[str]] = []

    async def settled() -> None:
        written.append(list(queue.pending))

    queue: OrderQueue[int] = OrderQueue(settled)
    await queue.add("a", 1)
    await queue.add("b", 2)
    assert written == [["a"], ["a", "b"]]


async def test_an_order_that_comes_again_is_not_executed_again() -> None:
    async def settled() -> None:
        pass

    queue: OrderQueue[int] = OrderQueue(settled)
    await queue.add("a", 1)
    await queue.add("a", 2)
    assert queue.pending == {"a": 1}
    assert queue.report("a") == 1
    await queue.add("a", 3)
    assert not queue.pending and list(queue.reported) == ["a"]

    successor: OrderQueue[int] = OrderQueue(settled)
    successor.resume([("b", 4)], queue.reported)
    await successor.add("a", 5)
    assert successor.pending == {"b": 4}


async def test_few_ids_of_reported_orders_are_kept_those_that_were_reported_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole of them is in every write of the journal. An early order may be reported late: a command runs for up to an hour."""
    monkeypatch.setattr(orders, "MOST_REPORTED", 2)

    async def settled() -> None:
        pass

    queue: OrderQueue[int] = OrderQueue(settled)
    for name in "abcd":
        await queue.add(name, 0)
    for name in "bcda":
        queue.report(name)
    assert list(queue.reported) == ["d", "a"]

    successor: OrderQueue[int] = OrderQueue(settled)
    successor.resume([("e", 0)], list(queue.reported))
    successor.report("e")
    assert list(successor.reported) == ["a", "e"]
