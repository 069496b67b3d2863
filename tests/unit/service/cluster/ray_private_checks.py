"""Ray's private functions are refused where they were not tried, exist where they were, and are used only until public ones come."""

from collections.abc import Callable
from pathlib import Path

import pytest
import ray
import ray.exceptions
import ray.experimental
import ray.util
import ray.util.state

from shardyard.service.cluster import ray_connection, ray_private
from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.errors import ClusterError
from shardyard.service.settings import Settings
from shardyard.workers.supervisor.journal import kv_store
from shardyard.workers.supervisor.ranks import group_table

#: Owner of a public name that would replace a private one → the name, and the file that would use it.
PUBLIC = [
    (ray, "available_resources_per_node", "service/cluster/ray_private.py"),
    (ray.util, "available_resources_per_node", "service/cluster/ray_private.py"),
    (ray.util.state, "available_resources_per_node", "service/cluster/ray_private.py"),
    (ray, "prestart_workers", "service/cluster/ray_private.py"),
    (ray.util, "prestart_workers", "service/cluster/ray_private.py"),
    (ray, "reset_auth_token", "service/cluster/ray_private.py"),
    (ray, "kv", "workers/supervisor/journal/kv_store.py"),
    (ray.util, "kv", "workers/supervisor/journal/kv_store.py"),
    (ray.experimental, "kv", "workers/supervisor/journal/kv_store.py"),
    (ray.util, "list_placement_groups", "workers/supervisor/ranks/group_table.py"),
    (ray.util, "list_named_placement_groups", "workers/supervisor/ranks/group_table.py"),
]


@pytest.mark.parametrize(("owner", "name", "file"), PUBLIC, ids=lambda value: value if isinstance(value, str) else "")
def test_ray_has_no_public_name_yet(owner: object, name: str, file: str) -> None:
    assert not hasattr(owner, name), f"the public API has come: use it. {name}, in {file}"


def test_all_files_try_the_same_ray() -> None:
    assert kv_store.TRIED == group_table.TRIED == ray_private.TRIED and ray.__version__.startswith(ray_private.TRIED)


@pytest.mark.parametrize(
    "call",
    [
        ray_private.stay_on_loopback,
        ray_private.connect_only_by_init,
        ray_private.forget_token,
        ray_private.free_resources,
    ],
    ids=lambda f: f.__name__,
)
def test_another_ray_is_refused(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "1.0.0")
    with pytest.raises(RuntimeError, match=r"is private to Ray and was tried on Ray 2\.60\.x only; Ray 1\.0\.0"):
        call()


def test_another_ray_prestarts_nothing_and_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "1.0.0")
    ray_private.prestart_workers(1, 1, 1.0)
    with pytest.raises(RuntimeError, match="internal_kv was tried"):
        kv_store.get("key")


def test_the_private_names_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import auto_init_hook, ray_constants, state
    from ray.core.generated import node_manager_pb2, node_manager_pb2_grpc
    from ray.experimental import internal_kv

    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_private.stay_on_loopback()
    assert ray_constants.ENABLE_RAY_CLUSTER is False
    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", True)
    ray_private.connect_only_by_init()
    assert auto_init_hook.enable_auto_connect is False
    ray_private.forget_token()
    assert callable(state.available_resources_per_node)
    fields = {field.name for field in node_manager_pb2.PrestartWorkersRequest.DESCRIPTOR.fields}
    assert fields >= {"language", "num_workers", "keep_alive_duration_secs"}
    assert "PrestartWorkers" in vars(node_manager_pb2_grpc.NodeManagerServiceServicer)
    assert callable(state.GlobalState._gen_placement_group_info) and callable(
        state.GlobalState._connect_and_get_accessor
    )
    assert callable(state.GlobalStateAccessor.get_placement_group_table)
    assert all(hasattr(internal_kv, f"_internal_kv_{name}") for name in ("put", "get", "del", "list", "exists"))


async def test_while_the_service_joins_its_cluster_no_call_joins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another cluster the gang would seem to be lost."""
    addresses: list[str | None] = []
    monkeypatch.setattr(ray, "init", lambda address=None, **_: addresses.append(address))
    ray_connection.join("head:6379")
    cluster = Cluster(Settings(data_dir=tmp_path, ray_address="head:6379"))
    with pytest.raises(ClusterError):
        await cluster.pull("shardyard-job-1-1", 0, 0.1)
    assert addresses == ["head:6379"]


async def test_errors_of_ray_are_errors_of_the_cluster() -> None:
    def fail() -> None:
        raise ray.exceptions.RaySystemError("no cluster")

    with pytest.raises(ClusterError, match="no cluster"):
        await ray_connection.in_thread(fail, 60.0)
