"""Traffic: the logical bytes that one rank sends per mesh axis and collective, counted where torch starts each collective.

Logical means what the algorithm moves, whatever the backend does (gloo's reduce-scatter moves twice that). For N ranks and n elements (of
the whole vector for reduce-scatter, all-gather and all-reduce): n(N−1)/N for reduce-scatter, all-gather, all-to-all, scatter, gather;
2n(N−1)/N for all-reduce; n for a message between two ranks; n(N−1)/N for broadcast and reduce, the mean over ranks. (Thakur et al., 2005.)
An uneven all-to-all moves what is not the rank's own. Padding counts where an algorithm sends it: chunks of a dimension that N does not
divide have equal size on the wire, N·⌈rows/N⌉ rows in the place of `rows`.
What compiled code sends without the dispatcher is not seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ..dispatch_mode import DispatchMode, operator_name
from ..mesh import REPLICA, Mesh
from ..process_groups import group_named

#: What an all-to-all within stands for: it counts as that collective.
_STANDS_FOR: ContextVar[str | None] = ContextVar("stands_for", default=None)


@contextmanager
def stands_for(collective: str) -> Iterator[None]:
    """Collectives started within count as `collective`, whose algorithm they carry out."""
    token = _STANDS_FOR.set(collective)
    try:
        yield
    finally:
        _STANDS_FOR.reset(token)


@dataclass
class Moved:
    """Sums over collectives of one kind on one axis, per rank. Elements are exact where N divides them."""

    calls: int = 0
    elements: float = 0.0
    bytes: float = 0.0

    def add(self, elements: float, element_bytes: int) -> None:
        self.calls += 1
        self.elements += elements
        self.bytes += elements * element_bytes


def _first(args: Sequence[Any]) -> list[torch.Tensor]:
    return tensors_in(args[0])


def _second(args: Sequence[Any]) -> list[torch.Tensor]:
    return tensors_in(args[1])


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, which may be nested lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors_in(item)] if isinstance(value, list | tuple) else []


#: Operator → (collective, the tensors that make up the whole vector, whether they are one rank's share of it).
_OPERATORS: dict[str, tuple[str, Callable[[Sequence[Any]], list[torch.Tensor]], bool]] = {
    "c10d::allreduce_": ("all_reduce", _first, False),
    "c10d::allreduce_coalesced_": ("all_reduce", _first, False),
    "c10d::_allgather_base_": ("all_gather", _first, False),
    "c10d::allgather_": ("all_gather", _first, False),
    "c10d::allgather_coalesced_": ("all_gather", _first, False),
    "c10d::allgather_into_tensor_coalesced_": ("all_gather", _first, False),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", _second, False),
    "c10d::reduce_scatter_": ("reduce_scatter", _second, False),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce_scatter", _second, False),
    "c10d::alltoall_base_": ("all_to_all", _second, False),
    "c10d::alltoall_": ("all_to_all", _second, False),
    "c10d::broadcast_": ("broadcast", _first, False),
    "c10d::reduce_": ("reduce", _first, False),
    "c10d::scatter_": ("scatter", _second, False),
    "c10d::gather_": ("gather", _first, False),
    "c10d::send": ("send", _first, False),
    "_c10d_functional::all_reduce": ("all_reduce", _first, False),
    "_c10d_functional::all_reduce_": ("all_reduce", _first, False),
    "_c10d_functional::all_reduce_coalesced": ("all_reduce", _first, False),
    "_c10d_functional::all_reduce_coalesced_": ("all_reduce", _first, False),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", _first, True),
    "_c10d_functional::all_gather_into_tensor_out": ("all_gather", _first, True),
    "_c10d_functional::all_gather_into_tensor_coalesced": ("all_gather", _first, True),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", _first, False),
    "_c10d_functional::reduce_scatter_tensor_out": ("reduce_scatter", _first, False),
    "_c10d_functional::reduce_scatter_tensor_coalesced": ("reduce_scatter", _first, False),
    "_c10d_functional::all_to_all_single": ("all_to_all", _first, False),
    "_c10d_functional::broadcast": ("broadcast", _first, False),
    "_c10d_functional::broadcast_": ("broadcast", _first, False),
    "_c10d_functional::isend": ("send", _first, False),
    "_dtensor::shard_dim_alltoall": ("all_to_all", _first, False),
}


def is_collective(op: Any) -> bool:
    """Whether an operator is a collective, a message, or waits for one."""
    if op.namespace == "_dtensor":  # it also has operators that send nothing
        return operator_name(op) in _OPERATORS
    return op.namespace in ("c10d", "_c10d_functional")


class Traffic(DispatchMode):
    """Counts while it is entered. `axes` names groups; others count under their own name, the default group under `world`."""

    def __init__(self, axes: Mapping[str, str]) -> None:
        super().__init__()
        self._axes = axes
        self.moved: dict[str, dict[str, Moved]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, as plain tensors
        if is_collective(func):
            self._count(func, args)
        return func(*args, **(kwargs or {}))

    def _count(self, func: Any, args: Sequence[Any]) -> None:
        name = operator_name(func)
        if name not in _OPERATORS:
            return  # barriers, waits, and the receiving side of a message
        collective, vector, is_share = _OPERATORS[name]
        group = group_of(args)
        parts, tensors = group.size(), vector(args)
        collective = _STANDS_FOR.get() or collective
        whole = sum(t.numel() for t in tensors) * (parts if is_share else 1)
        elements = _leaving(name, args, group.rank()) if collective == "all_to_all" else None
        axis = self._axes.get(group.group_name, "world" if group is dist.group.WORLD else group.group_name)
        moved = self.moved.setdefault(axis, {}).setdefault(collective, Moved())
        moved.add(
            logical(collective, whole, parts) if elements is None else elements,
            tensors[0].element_size() if tensors else 0,
        )

    def to_json(self) -> dict[str, dict[str, dict[str, float]]]:
        """Axis → collective → `{"calls", "elements", "bytes"}`."""
        return {
            axis: {name: {"calls": m.calls, "elements": m.elements, "bytes": m.bytes} for name, m in kinds.items()}
            for axis, kinds in self.moved.items()
        }


def logical(collective: str, elements: int, parts: int) -> float:
    """Elements that leave each of `parts` ranks when `collective` works on a whole vector of `elements`."""
    if collective == "send":
        return float(elements)
    return elements * (parts - 1) / parts * (2 if collective == "all_reduce" else 1)


def _leaving(name: str, args: Sequence[Any], rank: int) -> float | None:
    """Elements that an uneven all-to-all sends to other ranks; None for an even one."""
    place = {"c10d::alltoall_base_": (1, 4), "_c10d_functional::all_to_all_single": (0, 2)}.get(name)
    if place is None or not args[place[1]]:
        return None
    tensor, rows = args[place[0]], args[place[1]]
    return float((sum(rows) - rows[rank]) * (tensor.numel() // max(1, tensor.shape[0])))


def total(
    everyone: Sequence[Mapping[str, Mapping[str, Mapping[str, float]]]],
) -> dict[str, dict[str, dict[str, float]]]:
    """The sum over ranks of what `Traffic.to_json` gave on each."""
    summed: dict[str, dict[str, dict[str, float]]] = {}
    for rank in everyone:
        for axis, kinds in rank.items():
            for kind, numbers in kinds.items():
                into = summed.setdefault(axis, {}).setdefault(kind, dict.fromkeys(numbers, 0))
                for key, value in numbers.items():
                    into[key] += value
    return summed


def axes_of(mesh: Mesh) -> dict[str, str]:
    """Group name → mesh axis. Axes with the same ranks have one name, that which a spec uses where one does. Pairs are of the pipeline."""
    groups = {name: axis.group for name, axis in mesh.axes.items() if axis.group is not None}
    ranks = {axis: tuple(dist.get_process_group_ranks(group)) for axis, group in groups.items()}
    by_preference = sorted(groups, key=lambda axis: (axis in mesh.layout.degrees, axis == REPLICA))
    names = {ranks[axis]: axis for axis in by_preference}  # the last one stays
    pairs: dict[str, str] = {group.group_name: "pipeline" for group in mesh.pairs.values()}
    return {**pairs, **{group.group_name: names[ranks[axis]] for axis, group in groups.items()}}


def group_of(args: Sequence[Any]) -> dist.ProcessGroup:
    """The process group among an operator's arguments: boxed for c10d, by name or itself for functional collectives."""
    for argument in args:
        if isinstance(argument, dist.ProcessGroup):
            return argument
        if isinstance(
            argument, torch.ScriptObject
        ):  # the group comes before the kind of reduction, the other boxed argument
            group: dist.ProcessGroup = dist.ProcessGroup.unbox(argument)
            return group
    return group_named(next(argument for argument in reversed(args) if isinstance(argument, str)))
