"""Facts about this actor's node and process, as Ray and the kernel state them."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ..forkserver.client import connect
from ..one_thread import ONE_THREAD
from ..storage.upload_folder import remove_unused_uploads

#: Names the embedded head's folder. Every process that the head starts inherits it.
NODE_FOLDER: Final = "SHARDYARD_NODE"

#: Torch's names for its allocators' settings, the newer one first.
_ALLOCATOR: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def node_id() -> str:
    """Ray's id of this node."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def address() -> str:
    """This node's IP address."""
    import ray

    return str(ray.util.get_node_ip_address())


def addresses() -> frozenset[str]:
    """All IP addresses of this node's network interfaces. NCCL may name another one than Ray."""
    import psutil

    found = [one.address for several in psutil.net_if_addrs().values() for one in several]
    return frozenset(address.partition("%")[0] for address in found)


def nccl_process(device: str, pid: int | None) -> dict[str, Any]:
    """By what NCCL's RAS subsystem names a trainer's process: its id and one of its node's addresses. Empty on CPUs."""
    return {"pid": pid, "hosts": sorted(addresses())} if device == "cuda" else {}


def gpus() -> list[str]:
    """The GPUs that Ray has given to this actor."""
    import ray

    return [str(number) for number in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]


def raylet() -> int:
    """The raylet's process id. It started this worker and outlives it: it owns what the node's ranks share."""
    return int(os.environ.get("RAY_RAYLET_PID") or os.getppid())


def trainer_environment(device: str, entry: str, added: Mapping[str, str] | None = None) -> dict[str, str]:
    """The trainer's environment: this actor's without Ray's (whose token is not for users' code), what its job adds, and its devices.

    `entry`: as in the fork server's `Request`. In this package's own loop the segments of torch's allocator grow in place, unless this
    actor's environment has settings for it: sizes that change from step to step, as of gathered parameters, then leave less unusable
    memory between them. A user's program may share tensors of such segments with another process only where the container permits
    `pidfd_getfd` (pytorch#165685), so that it keeps torch's default.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= (ONE_THREAD if device == "cpu" else {}) | dict(added or {})
    env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus()) if device == "cuda" else ""
    if device == "cuda":
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # that of Ray's numbers, by which NVML is asked, too
        if not entry and not any(name in env for name in _ALLOCATOR):
            env[_ALLOCATOR[0]] = "expandable_segments:True"
    return env


def warm_fork_server() -> None:
    """Start the node's fork server, if it does not run, so that it imports what trainers need.

    What killed trainers had exported to a bucket is removed from the node's temporary files.
    """
    connect(fork_root(), raylet(), dict(os.environ)).close()
    with contextlib.suppress(OSError):
        remove_unused_uploads()


def fork_root() -> Path:
    """The folder of the node's fork servers: in the embedded head's own, else one of this user and raylet."""
    own = os.environ.get(NODE_FOLDER)
    if own:
        return Path(own)
    return Path(tempfile.gettempdir()) / f"shardyard-{os.getuid()}-{raylet()}"


def listen(host: str) -> socket.socket:
    """A listening socket on a free port. The trainer's store inherits it, so that no other process can bind the port first."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.bind((host, 0))
    listener.listen(4096)
    return listener


def network_interface(host: str) -> str | None:
    """The network interface that has this address. Gloo's default, that of the host name, may be another one."""
    import psutil

    has: Callable[[list[Any]], bool] = lambda addresses: any(address.address == host for address in addresses)  # noqa: E731
    return next((name for name, addresses in psutil.net_if_addrs().items() if has(addresses)), None)
