"""Finds the users of this machine at the ends of a connection: the kernel stores the owner of each."""

import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING: Final = "0A"

Endpoint = tuple[IPv4Address | IPv6Address, int]


def user_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> int | None:
    """The user id of the process that opened the connection; None if it comes from another machine. Blocks.

    `client`, `server`: the two ends, as named by the server's socket.
    """
    if client is None or server is None:
        return None
    wanted = (_plain(ip_address(client[0])), client[1]), (_plain(ip_address(server[0])), server[1])
    for local, remote, _, user in _rows(client[1]):
        if (_endpoint(local), _endpoint(remote)) == wanted:
            return user
    return None


def listeners(host: str, port: int) -> frozenset[int]:
    """The user ids of the processes to which a connection to a loopback address may go. Blocks.

    Empty for other addresses, and where the kernel does not say: on another system than Linux, or for a process of another network.
    """
    wanted = {
        ip_address(name) for name in (("127.0.0.1", "::1") if host == "localhost" else (host,)) if _is_loopback(name)
    }
    if not wanted:
        return frozenset()
    found = [(_endpoint(local)[0], user) for local, _, state, user in _rows(port) if state == _LISTENING]
    users = set()
    for address in wanted:
        own = {user for at, user in found if at == address}
        # A socket of all addresses gets what no socket of the address itself gets; one of IPv6 gets IPv4, too.
        users |= own or {user for at, user in found if at.is_unspecified and at.version >= address.version}
    return frozenset(users)


def _rows(port: int) -> Iterator[tuple[str, str, str, int]]:
    """Of each socket with this local port: the local and the remote address, the state, and the owner."""
    end = f":{port:04X}"
    for table in _TABLES:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:  # a kernel without IPv6, or another system
            continue
        for row in rows:
            # Documentation/networking/proc_net_tcp: number, local address, remote address, …, the owner's user id is the eighth field.
            _, local, remote, state, _, _, _, user, *_ = row.split()
            if local.endswith(end):
                yield local, remote, state, int(user)


def _endpoint(text: str) -> Endpoint:
    """`0100007F:20D0` is 127.0.0.1:8400: an address is printed as 32-bit words in the processor's byte order."""
    address, _, port = text.partition(":")
    words = (int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    return _plain(ip_address(b"".join(words))), int(port, 16)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address as such, also on an IPv6 socket."""
    return getattr(address, "ipv4_mapped", None) or address


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return False
