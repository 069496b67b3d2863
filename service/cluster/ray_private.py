"""Ray's private functions, those that have no public twin. `docs/design/private-apis.md` gives the reason for each.

Each raises `RuntimeError` on a version of Ray that was not tried, except `prestart_workers`: without it a gang starts more slowly.
The supervisor's key-value store, which Ray keeps under a private name, too, is in `workers/supervisor/journal/kv_store.py`.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

TRIED: Final = ("2.60.",)


def stay_on_loopback() -> None:
    """Make `ray.init` join a head on the loopback address, in a process that imported Ray before the environment said so."""
    _require("ray._private.ray_constants.ENABLE_RAY_CLUSTER")
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False


def connect_only_by_init() -> None:
    """Make calls fail while this process is in no cluster. By itself Ray joins any that it finds on this machine, or starts one."""
    _require("ray._private.auto_init_hook.enable_auto_connect")
    from ray._private import auto_init_hook

    auto_init_hook.enable_auto_connect = False


def forget_token() -> None:
    """Make the next `ray.init` read the cluster's token again."""
    _require("ray._raylet.AuthenticationTokenLoader")
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    AuthenticationTokenLoader.instance().reset_cache()


def free_resources() -> dict[str, dict[str, float]]:
    """Node → resource → what is free of it. Ray's public call gives only the sum over nodes."""
    _require("ray._private.state.available_resources_per_node")
    from ray._private.state import available_resources_per_node

    free: dict[str, dict[str, float]] = available_resources_per_node()
    return free


def prestart_workers(count: int, idle_s: int, timeout_s: float) -> None:
    """Ask the raylet of the first node for `count` more idle workers, to be kept for `idle_s` seconds. Best effort."""
    if not _tried():
        return
    import grpc
    import ray
    from ray.core.generated import common_pb2, node_manager_pb2, node_manager_pb2_grpc

    node = ray.nodes()[0]
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text()
    request = node_manager_pb2.PrestartWorkersRequest(
        language=common_pb2.PYTHON, num_workers=count, keep_alive_duration_secs=idle_s
    )
    with grpc.insecure_channel(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}") as channel:
        stub = node_manager_pb2_grpc.NodeManagerServiceStub(channel)
        with contextlib.suppress(grpc.RpcError):
            stub.PrestartWorkers(request, metadata=[("authorization", f"Bearer {token}")], timeout=timeout_s)


def _tried() -> bool:
    import ray

    return bool(ray.__version__.startswith(TRIED))


def _require(api: str) -> None:
    if not _tried():
        import ray

        versions = ", ".join(f"{version}x" for version in TRIED)
        raise RuntimeError(
            f"{api} is private to Ray and was tried on Ray {versions} only; Ray {ray.__version__} is installed."
        )
