import socket
from datetime import timedelta

import pytest
from harness.patience import PATIENCE_S
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.workers.program.reserved_port import reserved_port


@pytest.mark.parametrize("use_libuv", [True, False])
def test_torch_listens_on_a_port_that_is_reserved_for_it(use_libuv: bool) -> None:
    with reserved_port() as port:
        store = TCPStore("127.0.0.1", port, None, True, timedelta(seconds=PATIENCE_S), False, use_libuv=use_libuv)
        store.set("key", "value")
        assert store.get("key") == b"value"


def test_no_other_process_has_it_meanwhile() -> None:
    """One that asks for any port, or connects from any, never gets one that is bound."""
    with reserved_port() as port, socket.socket() as other, pytest.raises(OSError, match="already in use"):
        other.bind(("", port))
    with socket.socket() as other:
        other.bind(("", port))
