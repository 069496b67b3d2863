"""A cluster without Ray, and settings of a fast dispatcher."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shardyard.service.settings import Settings

from ...inprocess_cluster import InProcessCluster


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    fast = {"lease_s": 600.0, "poll_s": 0.05, "pull_s": 0.3, "nodes_s": 0.1, "stray_gangs_s": 0.1, "cancel_s": 60.0}
    fast |= {"retry_backoff_s": 0.05, "retry_backoff_max_s": 0.2}
    return Settings(data_dir=tmp_path, cpu_ranks_per_core=4, **fast)


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    made = InProcessCluster()
    yield made
    await made.end()
