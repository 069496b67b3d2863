"""What an earlier version's supervisor lacks. With real gangs: tests/integration/workers/supervisor/test_ray_cluster.py."""

from pathlib import Path
from typing import Any

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.supervisor_handle import SupervisorHandle
from shardyard.service.settings import Settings
from shardyard.workers.messages.exec_request import Exec


class Earlier:
    """A handle of Ray to a supervisor whose class has no commands."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'ActorHandle' object has no attribute {name!r}")


async def test_an_order_that_a_gang_does_not_know_is_not_taken(tmp_path: Path) -> None:
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="127.0.0.1:1"))
    cluster._supervisors["shardyard-job-1-1"] = SupervisorHandle(Earlier())
    assert not await cluster.deliver("shardyard-job-1-1", Exec("exec-1", 0, ("ls",), 60))
