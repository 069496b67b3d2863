"""Work by ids: once for each id, as many at a time as are allowed; few results are kept."""

import asyncio

import pytest

from shardyard.workers.rank import idempotent_tasks
from shardyard.workers.rank.idempotent_tasks import IdempotentTasks


class Counted:
    """Counts its calls, and how many run at the same time."""

    def __init__(self) -> None:
        self.calls = self.running = self.most = 0

    async def do(self) -> int:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return self.calls


async def test_each_id_is_done_once_and_alone() -> None:
    work, tasks = Counted(), IdempotentTasks[int]()
    found = await asyncio.gather(*(tasks.run(name, work.do) for name in "abcabc"))
    assert found == [1, 2, 3, 1, 2, 3] and (work.calls, work.most) == (3, 1)


async def test_as_many_as_are_allowed_are_done_at_the_same_time() -> None:
    work, tasks = Counted(), IdempotentTasks[int](2)
    await asyncio.gather(*(tasks.run(name, work.do) for name in "abc"))
    assert (work.calls, work.most) == (3, 2)


async def test_a_caller_that_is_cancelled_leaves_the_work_to_others() -> None:
    work, tasks = Counted(), IdempotentTasks[int]()
    first = asyncio.create_task(tasks.run("a", work.do))
    await asyncio.sleep(0)
    first.cancel()
    assert await tasks.run("a", work.do) == 1 and work.calls == 1


async def test_the_oldest_results_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotent_tasks, "MOST_KEPT", 2)
    work, tasks = Counted(), IdempotentTasks[int]()
    for name in "abcd":
        await tasks.run(name, work.do)
    assert [await tasks.run(name, work.do) for name in "dcb"] == [4, 3, 2]  # "a" went when "d" came
    assert await tasks.run("a", work.do) == 5


async def test_a_call_that_raises_is_repeated() -> None:
    work, tasks = Counted(), IdempotentTasks[int]()

    async def fails() -> int:
        raise OSError("no answer")

    for _ in range(2):
        with pytest.raises(OSError, match="no answer"):
            await tasks.run("a", fails)
    assert await tasks.run("a", work.do) == await tasks.run("a", fails) == 1
