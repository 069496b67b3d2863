"""Code that looks at files may block; no other code does."""

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from harness.patience import PATIENCE_S

from shardyard.service import spec_files
from shardyard.service.errors import AdvisorBusy, FilesTooSlow
from shardyard.service.spec_files import SpecFiles


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """Work that waits for it stands still until the test ends."""
    gate = threading.Event()
    yield gate
    gate.set()


async def test_results_and_errors_come_back() -> None:
    files = SpecFiles()
    assert await files.look(lambda until: until > 0)
    with pytest.raises(KeyError, match="x"):
        await files.look(lambda _: {}["x"])
    assert await asyncio.gather(*(files.look(lambda _, n=n: n) for n in range(30))) == list(range(30))


async def test_searches_run_one_after_another_and_beside_files(blocked: threading.Event) -> None:
    running, most = [0], [0]

    def work(number: int) -> int:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.001)
        running[0] -= 1
        return number

    files = SpecFiles(search_s=PATIENCE_S)
    assert await asyncio.gather(*(files.search(partial(work, n)) for n in range(20))) == list(range(20))
    assert most == [1]
    few = SpecFiles(search_s=0.05)
    with pytest.raises(AdvisorBusy) as refused:
        await few.search(blocked.wait)
    assert refused.value.field == "train.layout" and refused.value.remedy and refused.value.retry_after_s
    assert await few.look(lambda _: 1) == 1


async def test_what_blocks_is_refused_and_takes_one_turn(blocked: threading.Event) -> None:
    files = SpecFiles(limit_s=0.05)
    with pytest.raises(FilesTooSlow) as refused:
        await files.look(lambda _: blocked.wait())
    assert refused.value.remedy and refused.value.retry_after_s
    await _answered(files)
    held = [files.look(lambda _: blocked.wait()) for _ in range(spec_files.AT_ONCE)]
    assert {type(error) for error in await asyncio.gather(*held, return_exceptions=True)} == {FilesTooSlow}
    with pytest.raises(FilesTooSlow):
        await files.look(lambda _: 1)  # no turn is left ...
    blocked.set()
    await _answered(files)  # ... until one ends


async def test_where_no_thread_can_be_started_files_are_checked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SpecFiles()
    with monkeypatch.context() as full:

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        full.setattr(threading.Thread, "start", start)
        with pytest.raises(FilesTooSlow, match="No thread can be started"):
            await files.look(lambda _: 1)
        with pytest.raises(AdvisorBusy, match="No thread can be started"):
            await files.search(lambda: 1)
    await _answered(files)


async def test_files_that_do_not_answer_take_no_turns_of_others_and_searches_share_one(
    blocked: threading.Event,
) -> None:
    files = SpecFiles(limit_s=0.05, search_s=PATIENCE_S)
    first, second = files.apart(), files.apart()
    for _ in range(spec_files.AT_ONCE + 1):
        with pytest.raises(FilesTooSlow):
            await first.look(lambda _: blocked.wait())
    await _answered(second)
    searches = [asyncio.create_task(one.search(blocked.wait)) for one in (first, second)]
    await asyncio.sleep(0.05)
    assert sum(thread.name == "layout of a spec" for thread in threading.enumerate()) == 1
    blocked.set()
    assert all(await asyncio.gather(*searches))


async def _answered(files: SpecFiles) -> None:
    """A thread of a busy machine may begin later than a short limit allows."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert await files.look(lambda _: 1) == 1
                return
            except FilesTooSlow:
                continue


async def test_only_so_many_wait(blocked: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_files, "WAITING", 2)
    files = SpecFiles()
    looks = [asyncio.create_task(files.look(lambda _: blocked.wait())) for _ in range(spec_files.AT_ONCE + 2)]
    await asyncio.sleep(0)
    with pytest.raises(FilesTooSlow, match="are waiting to be checked"):
        await files.look(lambda _: 1)
    blocked.set()
    assert all(await asyncio.gather(*looks))


def test_an_ended_loop_waits_for_no_thread(blocked: threading.Event) -> None:
    async def leave() -> None:
        with pytest.raises(FilesTooSlow):
            await SpecFiles(limit_s=0.01).look(lambda _: blocked.wait())

    asyncio.run(leave())  # it would wait for threads of asyncio's own
    left = [thread for thread in threading.enumerate() if thread.name == "files of a spec"]
    assert left and all(thread.daemon for thread in left)
    blocked.set()
    for thread in left:
        thread.join(PATIENCE_S)
