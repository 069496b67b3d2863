"""What jobs read is tokenised while they wait, once, and nothing depends on it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.patience import PATIENCE_S

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.errors import ClusterError
from shardyard.service.jobs import submit as submitting
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store.engine import Store
from shardyard.workers.data import token_cache as token_caches
from shardyard.workers.data.tokenize_ahead import NICENESS
from shardyard.workers.spec import DataSpec

from ...inprocess_cluster import InProcessCluster, run_until_stopped, train
from .dispatching import dispatching, ended, reached, until

#: The kernel's last: niceness ends here, whatever is added.
NICEST = 19


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Makes the `data` of a spec that reads a file of its own."""

    def make(name: str) -> dict[str, Any]:
        file = tmp_path / f"{name}.txt"
        file.write_text(f"{name} says so. " * 500)
        return {"source": "text", "files": [str(file)], "seq_len": 32}

    return make


async def submit(store: Store, settings: Settings, data: dict[str, Any]) -> Job:
    training = {"steps": 20, "global_batch": 16, "layout": {"data": 4}, "data": data}
    spec = JobSpec.model_validate({"name": "reads", "train": training})
    return (await submitting.submit(store, settings, spec, None, "", "tester"))[0]


async def holding(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_each_corpus_that_is_waited_for_is_tokenised_once_whatever_becomes_of_it(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
    corpus: Callable[[str], dict[str, Any]],
) -> None:
    first, bad, other, another = corpus("first"), corpus("bad"), corpus("other"), corpus("another")
    cluster.script, cluster.unreadable = run_until_stopped, bad["files"]
    async with dispatching(store, settings, cluster):
        running = await submit(store, settings, first)
        await until(store, running, reached(State.RUNNING))
        waiting = [await submit(store, settings, data) for data in (bad, other, other | {"seq_len": 64}, bad)]
        await holding(lambda: len(cluster.tokenized) == 2)
        later = await submit(store, settings, another)
        await holding(lambda: len(cluster.tokenized) == 3)
        cluster.script = train
        await submitting.cancel(store, running.id, "tester")
        for job in (*waiting, later):
            assert (await ended(store, job)).state == State.SUCCEEDED
    files = [data["files"] for data in cluster.tokenized]
    assert files == [bad["files"], other["files"], another["files"]], "what runs at once reads its text itself"


async def test_an_embedded_head_has_it_in_its_cache(tmp_path: Path, corpus: Callable[[str], dict[str, Any]]) -> None:
    data, given = corpus("whole"), Settings(data_dir=tmp_path / "data")
    await Cluster(given).tokenize(data)
    (made,) = given.cache.glob("*.tokens")
    before = made.stat().st_mtime_ns
    assert token_caches.prepare(DataSpec.model_validate(data), given.cache).path == made
    assert made.stat().st_mtime_ns == before, "the job finds it done"
    (tmp_path / "whole.txt").unlink()
    with pytest.raises(ClusterError, match=r"whole\.txt"):
        await Cluster(given).tokenize(data)


async def test_elsewhere_it_is_unknown_where_a_gang_will_read_it(
    tmp_path: Path, corpus: Callable[[str], dict[str, Any]]
) -> None:
    given = Settings(data_dir=tmp_path / "data", ray_address="127.0.0.1:1")
    await Cluster(given).tokenize(corpus("nowhere"))
    assert not given.cache.exists()


async def test_one_that_is_given_up_leaves_no_process(tmp_path: Path, corpus: Callable[[str], dict[str, Any]]) -> None:
    given = Settings(data_dir=tmp_path / "data")
    data = corpus("long")
    key = token_caches.prepare(DataSpec.model_validate(data), given.cache).key
    (given.cache / f"{key}.json").unlink()
    with token_caches.locked(given.cache / f"{key}.lock"):  # as if another process was at it
        task = asyncio.create_task(Cluster(given).tokenize(data))
        await holding(lambda: bool(_at_work(given.cache)))
        assert _at_work(given.cache)[0].parent() == psutil.Process()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not _at_work(given.cache)


@pytest.mark.parametrize("nicer", [0, NICENESS])  # the tests themselves may run at any niceness
async def test_it_is_polite_and_ends_with_who_started_it(tmp_path: Path, nicer: int) -> None:
    ahead = [sys.executable, "-P", "-m", "shardyard.workers.data.tokenize_ahead", str(tmp_path / "cache")]
    code = f"import subprocess, time; subprocess.Popen({ahead!r}, stdin=subprocess.PIPE); time.sleep(600)"
    starter = subprocess.Popen(["nice", "-n", str(nicer), sys.executable, "-c", code])  # noqa: ASYNC220
    niceness = min(NICEST, os.nice(0) + nicer + NICENESS)
    try:
        await holding(lambda: [process.nice() for process in _at_work(tmp_path / "cache")] == [niceness])
        os.kill(starter.pid, signal.SIGKILL)
        await holding(lambda: not _at_work(tmp_path / "cache"))
    finally:
        starter.kill()
        starter.wait()


def _at_work(cache: Path) -> list[psutil.Process]:
    """The living processes that fill this cache."""
    found = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] and p.info["cmdline"][-1] == str(cache)]
    return [process for process in found if "shardyard.workers.data.tokenize_ahead" in process.info["cmdline"]]
