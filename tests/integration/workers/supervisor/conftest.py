"""One embedded head for the gangs of all modules, which each of them joins and leaves as a control plane that was started again."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.ray_head import Head
from shardyard.service.settings import Settings

HERE = Path(__file__).parent


def embedded(data_dir: Path) -> Settings:
    """Eight rank slots, and no idle workers: a module's end with its connection, and starting them costs the cores more than its tests."""
    cores = max(1, os.cpu_count() or 1)
    return Settings(data_dir=data_dir, cpu_ranks_per_core=-(-8 // cores), warm_workers=0)


@pytest.fixture(scope="package")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of the head that modules share. It runs: its start counts for no file (`tests/harness/budgets.py`)."""
    data_dir = tmp_path_factory.mktemp("data")
    try:
        with entries_found():
            Head(data_dir).ensure()
        yield data_dir
    finally:
        Head(data_dir).shut_down()


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """Of each module."""
    with entries_found():
        yield


@contextlib.contextmanager
def entries_found() -> Iterator[None]:
    """Ray and its trainers find `entries.py` beside this file, and no other cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def settings(head: Path) -> Settings:
    return embedded(head)


@pytest.fixture(scope="module")
def entry() -> str:
    """What trainers run; a module may say otherwise."""
    return "entries:work"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(settings: Settings, entry: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(settings, entry=entry)
    try:
        await cluster.connect()
        yield cluster
    finally:
        await cluster.disconnect()
