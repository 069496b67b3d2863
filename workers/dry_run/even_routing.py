"""Values for what a mixture of experts counts: every expert gets as many rows as any other, none is dropped.

Fake tensors have no values, but the sizes of a mixture's tensors are counts of routed rows. The count itself (`rows_each` of
`workers/models/moe.py`) runs as any operator, and its fake result carries an even count along as a real tensor. So does what the layers
compute of it. No operator is replaced: one whose host waits for a size, such as `bincount`, fails in a dry run.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ...strategies.dispatch_mode import DispatchMode
from ...strategies.telemetry.comm_counter import group_of
from .fake_tensors import unset_fake_temporarily

#: What is computed of counts before a host reads them. Views and sums: the results stay small.
_FOLLOWED: Final = (
    "aten::select",
    "aten::slice",
    "aten::view",
    "aten::_unsafe_view",
    "aten::sum",
    "aten::alias",
    "aten::detach",
)
_VALUE: Final = "_shardyard_value"


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The real tensor, on the host, whose values the fake `tensor` stands for; None if they are not known."""
    return getattr(tensor, _VALUE, None)


class EvenRouting(DispatchMode):
    """Follows counts while it is entered."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, as plain tensors
        name, given = func.name(), kwargs or {}
        result = func(*args, **given)
        if name == "aten::scatter_add_" and args[0].dim() == 1 and args[0].dtype == torch.int64:
            self._count(result, args[2])
        elif name.startswith("c10d::alltoall_base_"):
            self._exchange(args[0], args[1], group_of(args))
        elif name == "aten::stack":
            self._stack(result, *args)
        elif name.partition(".")[0] in _FOLLOWED and (known := value_of(args[0])) is not None:
            with unset_fake_temporarily():
                setattr(result, _VALUE, func(known, *args[1:], **given))
        return result

    @staticmethod
    def _count(counts: torch.Tensor, choices: torch.Tensor) -> None:
        """Rows per expert; the last number, of dropped choices, is zero.

        Loads are counted by this operator too, and have no such number, but no host reads them.
        """
        experts = len(counts) - 1
        if experts < 1:  # the loads of a single expert
            return
        each, more = divmod(choices.numel(), experts)
        with unset_fake_temporarily():
            rows = torch.full((experts + 1,), each, dtype=torch.int64)
            rows[:more] += 1
            rows[-1] = 0
            setattr(counts, _VALUE, rows)

    @staticmethod
    def _stack(result: torch.Tensor, tensors: Sequence[torch.Tensor], dim: int = 0) -> None:
        values = [value_of(tensor) for tensor in tensors]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            with unset_fake_temporarily():
                setattr(result, _VALUE, torch.stack(known, dim))

    @staticmethod
    def _exchange(arriving: torch.Tensor, leaving: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Every rank sends this one as many rows for its experts as this one has for them."""
        known = value_of(leaving)
        if known is None:
            return
        with unset_fake_temporarily():
            mine = known.chunk(group.size())[group.rank()]
            setattr(arriving, _VALUE, mine.repeat(group.size()))
