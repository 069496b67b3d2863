"""What an earlier version's supervisor lacks, what a lost connection is, and how a gang whose supervisor hangs is removed.

With real gangs: tests/integration/workers/supervisor/test_ray_cluster.py.
"""

from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster import ray_cluster
from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.supervisor_handle import SupervisorHandle
from shardyard.service.errors import ClusterError
from shardyard.service.settings import Settings
from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.tasks.checkpoint_task import Operation


class Earlier:
    """A handle of Ray to a supervisor whose class has no commands."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'ActorHandle' object has no attribute {name!r}")


async def test_an_order_that_a_gang_does_not_know_is_not_taken(tmp_path: Path) -> None:
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="127.0.0.1:1"))
    cluster._supervisors["shardyard-job-1-1"] = SupervisorHandle(Earlier())
    assert not await cluster.deliver("shardyard-job-1-1", Exec("exec-1", 0, ("ls",), 60))


class Disconnected:
    """A handle of a Ray client that has lost its connection."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error


#: While it connects again, and to calls after it has given up.
LOST = [ConnectionError("Client is shutting down."), Exception("Ray Client is not connected.")]


@pytest.mark.parametrize("error", LOST, ids=["connection error", "not connected"])
async def test_a_lost_connection_is_an_error_of_the_cluster(tmp_path: Path, error: Exception) -> None:
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="ray://127.0.0.1:1"))
    cluster._supervisors["shardyard-job-1-1"] = SupervisorHandle(Disconnected(error))
    with pytest.raises(ClusterError, match=str(error)) as caught:
        await cluster.pull("shardyard-job-1-1", 0, 0.0)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", LOST, ids=["connection error", "not connected"])
async def test_an_operation_whose_connection_is_lost_is_tried_again(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def task() -> None:
        raise error

    monkeypatch.setattr(ray_cluster, "begin_operation", lambda _operation, _node: task())
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="ray://127.0.0.1:1"))
    with pytest.raises(ClusterError, match=f"op-1: {error}"):
        await cluster.perform(Operation("op-1", "verify", "/checkpoints/1"), None)


async def test_a_mistake_in_our_own_code_is_none(tmp_path: Path) -> None:
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="ray://127.0.0.1:1"))
    cluster._supervisors["shardyard-job-1-1"] = SupervisorHandle(Disconnected(KeyError("events")))
    with pytest.raises(KeyError):
        await cluster.pull("shardyard-job-1-1", 0, 0.0)


class Hanging:
    """A handle of Ray to a supervisor that answers nothing."""

    class close:
        @staticmethod
        async def remote() -> None:
            raise TimeoutError("no answer within 20 s")


async def test_a_gang_whose_supervisor_does_not_answer_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gang, removed = "shardyard-job-1-1", list[str]()
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="127.0.0.1:1"))
    cluster._supervisors[gang] = SupervisorHandle(Hanging())
    monkeypatch.setattr(ray_cluster, "remove_gang", removed.append)
    await cluster.close_gang(gang)
    assert removed == [gang] and gang not in cluster._supervisors
    assert "shardyard-job-1-1 does not answer: no answer within 20 s" in caplog.text


async def test_a_gang_is_not_removed_if_the_cluster_does_not_answer_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(gang: str) -> None:
        raise ClusterError("the Ray cluster did not answer within 20 s")

    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="127.0.0.1:1"))
    cluster._supervisors["shardyard-job-1-1"] = SupervisorHandle(Hanging())
    monkeypatch.setattr(ray_cluster, "remove_gang", silent)
    with pytest.raises(ClusterError, match="the Ray cluster did not answer"):
        await cluster.close_gang("shardyard-job-1-1")
