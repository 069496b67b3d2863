"""Which tensors an operator reads and writes, by its schema; for collectives, whose schemas do not say it, by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from ...strategies.telemetry.comm_counter import is_collective
from ...strategies.torch_version import require

#: They allocate and write nothing.
_EMPTY: Final = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty_strided")
#: The host waits for their result.
_READ_BY_HOST: Final = (
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::equal",
    "aten::masked_select",
    "aten::bincount",
    "aten::_unique2",
)
#: Collectives that change what they are given. The others fill their first argument from their second.
_IN_PLACE: Final = (
    "allreduce_",
    "allreduce_coalesced_",
    "broadcast_",
    "reduce_",
    "all_reduce_",
    "all_reduce_coalesced_",
)


@dataclass(frozen=True)
class Operator:
    """What is the same in all calls of one operator."""

    name: str  # namespace::name
    written: tuple[bool, ...]  # by argument in the schema's order
    names: tuple[str, ...]
    touches_nothing: bool  # views, and questions about a tensor such as on which device it is
    is_empty: bool
    read_by_host: bool
    is_collective: bool

    @property
    def is_waited_for(self) -> bool:
        """Whether a collective makes the current stream wait for its end, and returns no handle."""
        return self.name.startswith("_dtensor::")

    def argument(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], otherwise: Any = None) -> Any:
        """The value of an argument in a call."""
        if name in kwargs:
            return kwargs[name]
        place = self.names.index(name) if name in self.names else len(args)
        return args[place] if place < len(args) else otherwise


@dataclass
class Accesses:
    """What one call reads and writes."""

    reads: list[torch.Tensor]
    writes: list[torch.Tensor]


def operator_of(func: Any) -> Operator:
    """Reads the schema of `func`."""
    require("OpOverload._schema")
    schema = func._schema
    name = schema.name
    written = tuple(bool(a.alias_info and a.alias_info.is_write) for a in schema.arguments)
    aliased = [r.alias_info for r in schema.returns if r.alias_info is not None]
    is_view = bool(aliased) and not any(info.is_write for info in aliased)
    collective = is_collective(func)
    makes_tensors = any("Tensor" in str(r.type) for r in schema.returns)
    is_question = not (makes_tensors or any(written) or collective or name in _READ_BY_HOST)
    return Operator(
        name=name,
        written=written,
        names=tuple(a.name for a in schema.arguments),
        touches_nothing=is_view or is_question,
        is_empty=name in _EMPTY,
        read_by_host=name in _READ_BY_HOST,
        is_collective=collective,
    )


def accesses(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Accesses:
    """Of the arguments. What a call returns, it writes."""
    if op.is_collective:
        return _of_collective(op, args, kwargs)
    found = Accesses([], [])
    for place, value in enumerate(args):
        (found.writes if place < len(op.written) and op.written[place] else found.reads).extend(tensors_of(value))
    for key, value in kwargs.items():
        is_written = key in op.names and op.written[op.names.index(key)]
        (found.writes if is_written else found.reads).extend(tensors_of(value))
    return found


def _of_collective(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Accesses:
    name = op.name.rpartition("::")[2]
    first, rest = list(tensors_of(args[:1])), list(tensors_of(args[1:]))
    if name in ("send", "isend") or (not op.name.startswith("c10d::") and name not in _IN_PLACE):
        return Accesses(first + rest, list(tensors_of(kwargs)))  # `out=` of functional collectives
    return Accesses(first + rest if name in _IN_PLACE else rest, first)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a value, which may be nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_of(one)
