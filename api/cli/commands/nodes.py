"""`shardyard nodes`: lists, cordons and uncordons nodes."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.markup import escape

from ....service.ids import CLUSTER
from ....service.schemas.node import Cordon, Node
from ...client import Client
from ..options import Json, Url
from ..terminal.screen import Screen, day, size

COLUMNS = ("HOST", "ID", "STATE", "CPU RANKS", "GPUS", "MEMORY", "FAULTS", "CORDON")
#: Cordons in one answer.
_MOST = 1000
#: Columns of labels that at least one node has.
LABELS = {"gpu_model": "GPU", "zone": "ZONE", "rail": "RAIL", "domain": "DOMAIN", "image": "IMAGE"}


def nodes(
    cordon: Annotated[
        str | None, typer.Option("--cordon", help="Place no new gangs on this node (id or host).")
    ] = None,
    hours: Annotated[float | None, typer.Option("--hours", min=0.001, help="With --cordon: duration in hours.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="With --cordon: reason, shown to others.")] = "",
    uncordon: Annotated[str | None, typer.Option("--uncordon", help="Place gangs on this node again.")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="List earlier cordons: node, author, reason and end.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=_MOST, help="With --history: maximum number of cordons.")
    ] = 100,
    url: Url = None,
    json: Json = False,
) -> None:
    """List the cluster's nodes; cordon or uncordon one."""
    if cordon is None and (hours is not None or reason):
        raise typer.BadParameter("--hours and --reason need --cordon NODE.")
    screen = Screen()
    with Client(url) as client:
        if cordon is not None:
            client.cordon(cordon, seconds=None if hours is None else hours * 3600, message=reason)
        if uncordon is not None:
            client.uncordon(uncordon)
        if history:
            _print_history(screen, client.cordons(limit=limit), limit, json)
            return
        found = client.nodes()
    if json:
        screen.json([node.model_dump(mode="json") for node in found])
        return
    labels = [label for label in LABELS if any(getattr(node, label) for node in found)]
    columns = (*COLUMNS, *(LABELS[label] for label in labels))
    screen.table(columns, [(*row(node), *(escape(getattr(node, label)) for label in labels)) for node in found])


def row(node: Node) -> tuple[str, ...]:
    """A node as a row of `COLUMNS`."""
    return (
        escape(node.host if node.cluster == CLUSTER else f"{node.host} ({node.cluster})"),
        node.id[:12],
        _state(node),
        in_use([node], "cpu"),
        in_use([node], "cuda"),
        size(node.memory_bytes) or "",
        str(node.faults),
        "" if node.cordon is None else escape(": ".join(filter(None, [_until(node.cordon), node.cordon.message]))),
    )


def in_use(nodes: Iterable[Node], kind: str) -> str:
    """`used/all` devices of these nodes, as jobs count them: a core may run several CPU ranks."""
    devices = [devices for node in nodes for devices in node.devices if devices.kind == kind]
    return f"{sum(one.all - one.free for one in devices)}/{sum(one.all for one in devices)}"


def _state(node: Node) -> str:
    if not node.alive:
        return "[red]lost[/]"
    if node.cordon is None:
        return "alive"
    return "[yellow]cordoned[/]" if not node.in_use else "[yellow]last in use[/]"


def _until(cordon: Cordon) -> str:
    who = cordon.actor if cordon.by_hand else "faults"
    return f"by {who}" + (f" until {day(cordon.until.timestamp())}" if cordon.until else "")


def _print_history(screen: Screen, cordons: list[Cordon], limit: int, json: bool) -> None:
    if json:
        screen.json([one.model_dump(mode="json") for one in cordons])
        return
    for one in cordons:
        lifted = f", lifted {day(one.ended_at.timestamp())} by {one.ended_by}" if one.ended_at else ""
        screen.line(f"{day(one.since.timestamp())}  {one.node[:12]}  {_until(one)}{lifted}  {one.message}".rstrip())
    if not cordons:
        screen.hint("No node was ever cordoned.")
    elif len(cordons) == limit:
        screen.hint(f"These are the newest {limit}; --limit N lists more, up to {_MOST}.")
