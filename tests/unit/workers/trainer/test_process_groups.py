"""Which network interface a rank's process groups use."""

import socket
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.trainer.process_groups import formed, name_interface

NAMES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@pytest.mark.parametrize(
    ("interface", "before", "after"),
    [
        ("eth0", {}, dict.fromkeys(NAMES, "eth0")),
        ("eth0", {"NCCL_SOCKET_IFNAME": "ib0,ib1"}, {"NCCL_SOCKET_IFNAME": "ib0,ib1", "GLOO_SOCKET_IFNAME": "eth0"}),
        ("eth0", dict.fromkeys(NAMES, "^lo"), dict.fromkeys(NAMES, "^lo")),
        ("eth0", {"GLOO_SOCKET_IFNAME": ""}, dict.fromkeys(NAMES, "eth0")),
        (None, {}, {}),
    ],
)
def test_what_the_operator_set_wins(interface: str | None, before: dict[str, str], after: dict[str, str]) -> None:
    name_interface(interface, before)
    assert before == after


def test_a_group_is_formed_over_the_operators_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo refuses an interface that does not exist."""
    for name in NAMES:
        monkeypatch.setenv(name, "lo")
    listener = socket.create_server(("127.0.0.1", 0))
    place: dict[str, Any] = {"master_host": "127.0.0.1", "master_port": listener.getsockname()[1]}
    coords = RankAssignment(
        0, 1, 0, **place, master_fd=listener.detach(), interface="no-such-interface", timeout_s=30.0
    )
    with formed(coords) as device:
        try:
            dist.all_reduce(tensor := torch.ones(1, device=device))
            assert tensor.item() == 1
        finally:
            dist.destroy_process_group()
