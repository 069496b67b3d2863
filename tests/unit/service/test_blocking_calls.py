"""A call that blocks keeps one turn, and no thread that others use."""

import asyncio
import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.patience import PATIENCE_S

from shardyard.service.blocking_calls import BlockingCalls, in_own_thread


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """Work that waits for it stands still until the test ends."""
    gate = threading.Event()
    yield gate
    gate.set()


async def test_results_and_errors_come_back_and_turns_end(blocked: threading.Event) -> None:
    calls = BlockingCalls("test", 1, PATIENCE_S)
    assert [await calls.do(lambda n=n: n) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]
    with pytest.raises(KeyError, match="x"):
        await calls.do(lambda: {}["x"])
    first = asyncio.create_task(calls.do(blocked.wait))
    second = asyncio.create_task(calls.do(lambda: 2))
    await asyncio.sleep(0)
    assert calls.waiting == 1
    blocked.set()
    assert (await first, await second, calls.waiting) == (True, 2, 0)


async def test_what_blocks_is_given_up_and_keeps_its_turn(blocked: threading.Event) -> None:
    calls = BlockingCalls("test", 1, 0.05)
    for work in (blocked.wait, lambda: 1):
        with pytest.raises(TimeoutError, match=r"No answer within 0.05 s"):
            await calls.do(work)
    left = [thread for thread in threading.enumerate() if thread.name == "test"]
    assert len(left) == 1 and left[0].daemon


async def test_a_thread_that_cannot_be_started_ends_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = BlockingCalls("test", 1, PATIENCE_S)
    with monkeypatch.context() as full:

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        full.setattr(threading.Thread, "start", start)
        for _ in range(2):
            with pytest.raises(OSError, match="No thread can be started") as failed:
                await calls.do(lambda: 1)
            assert failed.value.errno == errno.EAGAIN and calls.waiting == 0
    assert await calls.do(lambda: 2) == 2


async def test_a_thread_of_its_own_waits_for_no_other_call(blocked: threading.Event) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    other = asyncio.create_task(asyncio.to_thread(blocked.wait))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        assert await in_own_thread("test", threading.get_ident) != threading.get_ident()
        with pytest.raises(KeyError, match="x"):
            await in_own_thread("test", lambda: {}["x"])
    assert not other.done()
    blocked.set()
    await other
