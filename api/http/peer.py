"""Finds the user of this machine who sends a request: the kernel stores the owner of each end of a connection."""

import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

Endpoint = tuple[IPv4Address | IPv6Address, int]


def user_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> int | None:
    """The user id of the process that opened the connection; None if it comes from another machine. Blocks.

    `client`, `server`: the two ends, as named by the server's socket.
    """
    if client is None or server is None:
        return None
    wanted = (_plain(ip_address(client[0])), client[1]), (_plain(ip_address(server[0])), server[1])
    port = f":{client[1]:04X}"
    for table in _TABLES:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        for row in rows:
            # Documentation/networking/proc_net_tcp: number, local address, remote address, …, the owner's user id is the eighth field.
            _, local, remote, _, _, _, _, user, *_ = row.split()
            if local.endswith(port) and (_endpoint(local), _endpoint(remote)) == wanted:
                return int(user)
    return None


def _endpoint(text: str) -> Endpoint:
    """`0100007F:20D0` is 127.0.0.1:8400: an address is printed as 32-bit words in the processor's byte order."""
    address, _, port = text.partition(":")
    words = (int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    return _plain(ip_address(b"".join(words))), int(port, 16)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address as such, also on an IPv6 socket."""
    return getattr(address, "ipv4_mapped", None) or address
