"""Forms the world's process group of a rank of a gang, once per generation."""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..messages.rendezvous import RankAssignment
from ..world import device_of, form_world
from .cpu_binding import bind_beside
from .nccl_watchdog import set_up


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
    device = device_of(coords.device, 0)
    if device.type == "cuda":
        bind_beside(device)  # before NCCL starts its threads, which inherit it
    form_world(device, store=store, rank=coords.rank, world_size=coords.world_size, timeout=timeout)
    yield device
