"""Forms process groups, on gloo for CPUs and NCCL for GPUs, once per generation."""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

from ..messages.rendezvous import RankAssignment
from .cpu_binding import bind_beside
from .nccl_watchdog import set_up

#: On GPUs the world has gloo beside NCCL for what the host sends: objects such as checkpoint plans, and the clocks of traces. The groups
#: of the mesh have NCCL only.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def name_interface(interface: str | None, env: MutableMapping[str, str]) -> None:
    """Make gloo and NCCL use the network interface of the node's address, unless the operator has set one in the node's environment."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if interface and not env.get(name):
            env[name] = interface


@contextmanager
def formed(coords: RankAssignment) -> Iterator[torch.device]:
    """The world's process group for a rank of a gang; yields this rank's device."""
    name_interface(coords.interface, os.environ)
    if coords.device == "cuda":
        set_up(coords.timeout_s, os.environ)
    timeout = timedelta(seconds=coords.timeout_s)
    store = TCPStore(
        coords.master_host,
        coords.master_port,
        coords.world_size,
        is_master=coords.rank == 0,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=coords.master_fd if coords.rank == 0 else None,
    )
    device = _device(coords.device, 0)
    if device.type == "cuda":
        bind_beside(device)  # before NCCL starts its threads, which inherit it
    form_world(device, store=store, rank=coords.rank, world_size=coords.world_size, timeout=timeout)
    yield device


@contextmanager
def formed_by_torchrun(kind: str) -> Iterator[torch.device]:
    """The world's process group from torchrun's environment (a world of one without it); yields this rank's device."""
    alone = "RANK" not in os.environ
    if alone:
        os.environ |= {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
            "LOCAL_RANK": "0",
        }
    device = _device(kind, int(os.environ.get("LOCAL_RANK", "0")))
    place: dict[str, Any] = {"store": HashStore(), "rank": 0, "world_size": 1} if alone else {}
    form_world(device, timeout=timedelta(minutes=10), **place)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def form_world(device: torch.device, **place: Any) -> None:
    """Form the world's group. `place`: the arguments of `init_process_group` that say which rank this is of which world.

    On GPUs the group is bound to the device: NCCL connects at once, so that the groups of the mesh can be split from it.
    """
    bound = device if device.type == "cuda" else None
    dist.init_process_group(BACKENDS[device.type], device_id=bound, **place)


def _device(kind: str, index: int) -> torch.device:
    if kind == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
