"""Streams from an API server to a rank: over the rank's gate (`workers/rank/stream_gate.py`), which an order opens at the first stream.

The gate is a command beside the rank, so it is on record, starts at most once, and ends with the rank. Its name and the SHA-256 of its
token are in the order. Each API server derives the token from the name and its access token, so the token is stored nowhere. The gate
prints where it listens into the rank's log. Its name begins with the position of the log's last line at the time of the order, so that
the line is found without a search of the log. Off unless `SHARDYARD_EXEC` allows it.
"""

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.exec_request import GATE, GATE_STREAM, MOST_GATE_SECONDS
from ...workers.messages.stream_frames import MOST_FRAME, Stream, connected, read_control
from ..errors import ShardyardError
from ..profile_errors import CommandTooLong, ExecDisabled, PortClosed, RankUnreachable
from ..settings import Settings
from ..store import logs, orders
from ..store.engine import Store
from ..store.profile_tables import execs
from . import order_frame
from .order_frame import OrderKind
from .rank_commands import KEPT
from .rank_profiles import refuse_unknown_rank

#: Seconds for a gate to be open: a dispatcher sends the order, and the rank's node starts it.
OPEN_S: Final = 30.0
#: Seconds for a gate's node to accept a connection, and for the gate to answer.
CONNECT_S: Final = 5.0
#: Seconds between two looks for an open gate.
POLL_S: Final = 0.1
#: Bytes of what a stream is opened with, as JSON: it shares the first frame with the token and the actor's name.
MOST_OPENS: Final = MOST_FRAME - 1024
#: Exit status of a gate that was no longer in use.
_UNUSED: Final = 0
#: Exit status where the gang's version has no gates, and takes the order's name for that of a program.
_UNKNOWN: Final = 127
_PLACE: Final = re.compile(r"\S+ listens on (\S+) (\d{1,5})")
_LAST_PORT: Final = 65535

#: The token of the gate of a name.
Sign = Callable[[str], str]


@dataclass(frozen=True)
class _GateRequest:
    """The columns of a gate's order that its caller decides."""

    rank: int
    seconds: int = MOST_GATE_SECONDS


@dataclass(frozen=True)
class StreamRequest:
    """What a stream reaches at a rank of a job (id or name), and who wants it. `opens`: the hello's `open`, as `stream_frames` says."""

    job: str
    rank: int
    opens: Mapping[str, Any]
    actor: str


async def connect(
    store: Store, settings: Settings, wanted: StreamRequest, sign: Sign | None, on_order: Callable[[], None]
) -> Stream:
    """A stream to what is wanted, over the rank's open gate or a new one, of whose order `on_order` informs the dispatcher.

    `sign` is None on a server without an access token. Raises ExecDisabled, CommandTooLong, JobNotFound, JobNotRunning,
    ProfileRankUnknown, PortClosed, RankUnreachable.
    """
    if not settings.exec:
        raise ExecDisabled()
    if sign is None:
        message = "This server accepts requests without an access token, and then opens no streams to ranks."
        raise ExecDisabled(message, "Give it a token: leave SHARDYARD_INSECURE_ALLOW_REMOTE unset.")
    if len(json.dumps(dict(wanted.opens)).encode()) > MOST_OPENS:
        remedy = "Put the text into a file that the job's code has."
        raise CommandTooLong(f"The command has more than {MOST_OPENS:,} bytes as JSON.", field="command", remedy=remedy)
    deadline = time.monotonic() + OPEN_S
    while True:
        order = await _ordered(store, wanted, sign)
        on_order()
        place = await _opened(store, order, deadline)
        why = "it has just closed"
        if place is not None:
            try:
                return await _greeted(place, sign(order["command"][1]), wanted)
            except (OSError, ValueError) as error:
                why = str(error) or type(error).__name__
        if time.monotonic() > deadline:
            raise _unreachable(wanted, place, why)
        await asyncio.sleep(POLL_S)


async def _ordered(store: Store, wanted: StreamRequest, sign: Sign) -> RowMapping:
    """The order of the rank's open gate, or of a new one."""
    kind = OrderKind("exec", execs, partial(_prepare, sign), keep_settled=KEPT - 1)
    async with store.write() as tx:
        _, row = await order_frame.create(tx, kind, wanted.job, _GateRequest(wanted.rank), None, wanted.actor)
    return row


async def _prepare(
    sign: Sign, tx: AsyncConnection, job: RowMapping, request: _GateRequest
) -> dict[str, Any] | RowMapping:
    order_frame.refuse_unless_running(job, "terminals and ports of ranks exist in running jobs only")
    refuse_unknown_rank(job, request.rank)
    for row in await orders.open_of(tx, execs, job["id"]):
        if row["rank"] == request.rank and row["attempt"] == job["attempt"] and _is_of(row["command"], sign):
            return row
    name = f"{job['log_pos']}-{secrets.token_hex(8)}"
    return {"attempt": job["attempt"], "command": [GATE, name, _digest(sign(name))]}


def _is_of(command: list[str], sign: Sign) -> bool:
    """Whether a command is a gate whose token this server has; another has replaced the access token, or a user has made his own."""
    return len(command) == 3 and command[0] == GATE and command[2] == _digest(sign(command[1]))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def _opened(store: Store, order: RowMapping, deadline: float) -> tuple[str, int] | None:
    """The address and port of an order's gate; None if it has ended because it was not in use. Raises RankUnreachable."""
    name = order["command"][1]
    position = int(name.partition("-")[0])
    while True:
        async with store.read() as tx:
            line = await logs.first_beginning(tx, order["job_id"], order["rank"], GATE_STREAM, f"{name} ", position)
            now = await orders.by_id(tx, execs, order["job_id"], order["id"])
        if now is None or now["settled_at"] is not None:
            if now is None or now["status"] == _UNUSED:
                return None
            old = " (an earlier version of Shardyard has started this attempt)" if now["status"] == _UNKNOWN else ""
            raise _refused(f"The way to rank {order['rank']} has closed: {now['message']}{old}.")
        if line is not None:
            return _place(line["text"])
        if time.monotonic() > deadline:
            raise _refused(f"Rank {order['rank']} has opened no way within {OPEN_S:g} s.")
        await asyncio.sleep(POLL_S)


def _place(text: str) -> tuple[str, int]:
    """Where a gate listens, as it has printed it. Raises RankUnreachable for an address that no node has."""
    found = _PLACE.fullmatch(text)
    address = _address(found[1]) if found and int(found[2]) <= _LAST_PORT else None
    if found is None or address is None:
        raise _refused(f"The rank's node has printed no address: {text[:200]}")
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise _refused(f"{address} is the address of no node.")
    return str(address), int(found[2])


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address; that of IPv4 where it is written in IPv6, as `::ffff:10.0.0.1`, since other rules hold for it."""
    try:
        given = ip_address(text)
    except ValueError:
        return None
    return given.ipv4_mapped or given if isinstance(given, IPv6Address) else given


async def _greeted(place: tuple[str, int], token: str, wanted: StreamRequest) -> Stream:
    """A stream that reaches what is wanted.

    Raises OSError where the gate has closed, ValueError where another program has its port now, PortClosed, RankUnreachable.
    """
    async with asyncio.timeout(CONNECT_S):
        stream = await connected(*place)
        try:
            await stream.control({"token": token, "actor": wanted.actor, "open": dict(wanted.opens)})
            answer = await stream.read()
        except BaseException:
            stream.abort()
            raise
    if answer is None:
        stream.abort()
        raise ConnectionError("the gate has closed the connection")
    message = read_control(answer[1])
    if "error" in message:
        stream.abort()
        raise _refusal(str(message["error"]), wanted)
    return stream


def _refusal(why: str, wanted: StreamRequest) -> ShardyardError:
    if "port" in wanted.opens and why.startswith("nothing"):
        remedy = "Start the server in the job, on 127.0.0.1 or on all addresses, and name its port."
        return PortClosed(f"Rank {wanted.rank}: {why}.", field="port", remedy=remedy)
    return RankUnreachable(f"Rank {wanted.rank}: {why}.", field="rank", remedy="Close a stream that is not used.")


def _refused(message: str) -> RankUnreachable:
    remedy = "See the job's state with: shardyard show JOB. The dispatchers need SHARDYARD_EXEC=true, too."
    return RankUnreachable(message, field="rank", remedy=remedy)


def _unreachable(wanted: StreamRequest, place: tuple[str, int] | None, why: str) -> RankUnreachable:
    where = "" if place is None else f" at {place[0]} port {place[1]}"
    message = f"The API server cannot connect to rank {wanted.rank}{where}: {why}."
    remedy = "API servers must reach all ports of the Ray nodes: see docs/how-to/develop.md."
    return RankUnreachable(message, field="rank", remedy=remedy)
