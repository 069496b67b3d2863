"""Times collectives over process groups. Every rank of a group calls the same functions in the same order, with the same arguments."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import torch
import torch.distributed as dist

from ...strategies.mesh import Mesh
from .report import COLLECTIVES, Link, Report, Speed

Operation = Callable[[], object]
T = TypeVar("T")

#: Rounds of which the median counts, and the time that one takes at least, in seconds, where one call is shorter.
_ROUNDS: Final = 3
_ROUND_S: Final = 0.02
_MOST_CALLS: Final = 200
#: Elements are of float32.
_WIDTH: Final = 4
_LINK_BYTES: Final = 4 << 20
#: The largest number of ends between which links are measured.
_MOST_ENDS: Final = 64


@dataclass(frozen=True)
class _Span:
    """A group, and the device on which its ranks send."""

    group: dist.ProcessGroup
    device: torch.device

    @property
    def size(self) -> int:
        return self.group.size()


def groups_of(mesh: Mesh | None) -> dict[str, dist.ProcessGroup]:
    """The world, and each axis of the mesh over which something is sent; an axis with the ranks of another one once.

    Workers and parameter servers send over the world.
    """
    world = dist.group.WORLD
    assert world is not None
    found, known = {"world": world}, [dist.get_process_group_ranks(world)]
    for name, axis in () if mesh is None or mesh.layout.servers else mesh.axes.items():
        if (
            axis.group is not None
            and axis.size > 1
            and (ranks := dist.get_process_group_ranks(axis.group)) not in known
        ):
            found[name] = axis.group
            known.append(ranks)
    return found


def measured(groups: Mapping[str, dist.ProcessGroup], sizes: Sequence[int], device: torch.device) -> Report:
    """Every collective over every axis in every size of bytes, then the links. Collective over the world."""
    speeds = []
    for axis, group in groups.items():
        span = _Span(group, device)
        for size in sizes:
            for collective in COLLECTIVES:
                speeds.append(_speed(span, axis, collective, size))
    nodes = _gathered(socket.gethostname())
    backend = _backend(next(iter(groups.values())), device)
    return Report(backend, dist.get_world_size(), tuple(nodes), tuple(speeds), tuple(_links(nodes, device)))


def _backend(group: dist.ProcessGroup, device: torch.device) -> str:
    """The backend of this kind of device, such as `nccl`: a group may have one for each kind."""
    of_kinds = dict(one.split(":") for one in dist.get_backend_config(group).split(","))
    return of_kinds[device.type]


def _speed(span: _Span, axis: str, collective: str, size: int) -> Speed:
    count = max(1, size // _WIDTH // span.size) * span.size
    seconds = _timed(_operation(span, collective, count), span)
    return Speed(axis, collective, span.size, count * _WIDTH, seconds)


def _operation(span: _Span, collective: str, count: int) -> Operation:
    """A call that moves `count` elements, as nccl-tests counts them: the larger of what a rank sends and what it receives."""
    group, part = span.group, count // span.size
    whole = torch.zeros(count, dtype=torch.float32, device=span.device)
    share = torch.zeros(part, dtype=torch.float32, device=span.device)
    operations: dict[str, Operation] = {
        "broadcast": lambda: dist.broadcast(whole, group=group, group_src=0),
        "reduce": lambda: dist.reduce(whole, group=group, group_dst=0),
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(share, whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, share, group=group),
    }
    if collective in operations:
        return operations[collective]
    other = torch.zeros_like(whole)
    if collective == "all_to_all":
        return lambda: dist.all_to_all_single(other, whole, group=group)
    rank = group.rank()
    return lambda: _exchange(whole, other, (rank + 1) % span.size, (rank - 1) % span.size, group)


def _exchange(sent: torch.Tensor, received: torch.Tensor, to: int, source: int, group: dist.ProcessGroup) -> None:
    """Send to one rank of the group while another one sends."""
    operations = [
        dist.P2POp(dist.isend, sent, group=group, group_peer=to),
        dist.P2POp(dist.irecv, received, group=group, group_peer=source),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def _timed(operation: Operation, span: _Span) -> tuple[float, ...]:
    """Seconds per call of each round, on the slowest rank."""
    _round(operation, 2, span)
    once = _slowest(_round(operation, 1, span), span)
    calls = max(1, min(_MOST_CALLS, int(_ROUND_S / max(once, 1e-9))))
    return tuple(_slowest(_round(operation, calls, span), span) for _ in range(_ROUNDS))


def _round(operation: Operation, calls: int, span: _Span) -> float:
    _slowest(0.0, span)  # so that the ranks begin together
    began = time.perf_counter()
    for _ in range(calls):
        operation()
    if span.device.type == "cuda":
        torch.cuda.synchronize(span.device)
    return (time.perf_counter() - began) / calls


def _slowest(seconds: float, span: _Span) -> float:
    """The largest over the group's ranks."""
    found = torch.tensor([seconds], dtype=torch.float64, device=span.device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX, group=span.group)
    return float(found.item())


# Links.


def _links(nodes: Sequence[str], device: torch.device) -> Iterator[Link]:
    """Each pair of ends once, as many pairs at a time as have no end in common."""
    world = dist.group.WORLD
    assert world is not None
    span, rank = _Span(world, device), dist.get_rank()
    sent, received = (torch.zeros(_LINK_BYTES // _WIDTH, device=device) for _ in range(2))
    for pairs in rounds(ends(nodes)):
        mine = next((pair for pair in pairs if rank in pair), None)
        seconds = 0.0
        if mine is not None:
            peer = mine[0] if mine[1] == rank else mine[1]
            seconds = min(_alone(sent, received, peer, span) for _ in range(1 + _ROUNDS))
        every = _gathered(seconds)
        for one, other in pairs:
            slower = max(float(every[one]), float(every[other]), 1e-9)
            yield Link((one, other), (nodes[one], nodes[other]), _LINK_BYTES, _LINK_BYTES / slower)


def _alone(sent: torch.Tensor, received: torch.Tensor, peer: int, span: _Span) -> float:
    """Seconds of one exchange with a peer, in which no other rank takes part."""
    began = time.perf_counter()
    _exchange(sent, received, peer, peer, span.group)
    if span.device.type == "cuda":
        torch.cuda.synchronize(span.device)
    return time.perf_counter() - began


def ends(nodes: Sequence[str]) -> list[int]:
    """The ranks between which links are measured: the first of each node; on a single node all ranks."""
    first = [rank for rank, node in enumerate(nodes) if node not in nodes[:rank]]
    return (first if len(first) > 1 else [*range(len(nodes))])[:_MOST_ENDS]


def rounds(players: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Every pair of players once, in rounds in which each plays at most once (the circle method)."""
    circle: list[int | None] = [*players, *([None] if len(players) % 2 else [])]
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(min(one, two), max(one, two)) for one, two in pairs if one is not None and two is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def _gathered(mine: T) -> list[T]:
    """The value of each rank of the world."""
    found: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return [one for one in found if one is not None]
