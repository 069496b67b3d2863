"""Finds the users of this machine at the ends of a connection: the kernel stores the owner of each."""

import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: States of a socket, as the tables name them.
_ESTABLISHED: Final = "01"
_LISTENING: Final = "0A"
#: In place of the user id of a connection that is closed: the kernel does not say any more whose it was, and shows root in some states.
CLOSED: Final = -1

Endpoint = tuple[IPv4Address | IPv6Address, int]


def user_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> int | None:
    """The user id of the process that opened the connection; None if it comes from another machine; `CLOSED`. Blocks.

    `client`, `server`: the two ends, as named by the server's socket.
    """
    if client is None or server is None:
        return None
    theirs, ours = _named(client), _named(server)
    for local, remote, state, user in _rows(client[1]):
        if (_endpoint(local), _endpoint(remote)) == (theirs, ours):
            return user if state == _ESTABLISHED else CLOSED
    # A process that resets its connection leaves no socket of it, as another machine has none here. But then the server's is gone, too.
    states = {(_endpoint(local), _endpoint(remote)): state for local, remote, state, _ in _rows(server[1])}
    return CLOSED if states and states.get((ours, theirs)) != _ESTABLISHED else None


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


def _named(end: tuple[str, int]) -> Endpoint:
    """An end by its socket's name, in which the scope of an IPv6 address is one of its interface."""
    return _plain(ip_address(end[0].partition("%")[0])), end[1]


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
