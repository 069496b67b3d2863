"""One embedded head for a module's tests, and what a test asks of processes."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from shardyard.service.cluster import Cluster
from shardyard.service.settings import Settings

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Eight rank slots. Ray and its trainers find `entries.py` beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
            patch.delenv(name, raising=False)
        cores = max(1, os.cpu_count() or 1)
        yield Settings(data_dir=tmp_path_factory.mktemp("data"), cpu_ranks_per_core=-(-8 // cores))


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
        await cluster.shut_down()
