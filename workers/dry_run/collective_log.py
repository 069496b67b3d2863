"""The collectives that one rank starts in a step: their logical bytes by axis, and their order."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from ...strategies.dispatch_mode import operator_name
from ...strategies.mesh import Mesh
from ...strategies.telemetry.comm_counter import Traffic, axes_of, group_of, tensors_in
from .report import Collectives


class CollectiveLog(Traffic):
    """Logs while it is entered. `order` has one entry per collective of each group: operator, dtype and elements."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(axes_of(mesh))
        self.order: dict[str, list[str]] = {}

    def begin_step(self) -> None:
        self.moved.clear()
        self.order.clear()

    def _count(self, func: Any, args: Sequence[Any]) -> None:
        super()._count(func, args)
        name = operator_name(func).rpartition("::")[2]
        if name in ("wait_tensor", "barrier", "monitored_barrier_"):
            return
        group, tensors = group_of(args), tensors_in(args)
        what = f"{name} {tensors[0].dtype} {sum(t.numel() for t in tensors)}" if tensors else name
        ranks = ",".join(map(str, dist.get_process_group_ranks(group)))
        self.order.setdefault(ranks, []).append(what)

    def collectives(self) -> tuple[Collectives, ...]:
        return tuple(
            Collectives(axis, kind, moved.calls, moved.bytes)
            for axis, kinds in sorted(self.moved.items())
            for kind, moved in sorted(kinds.items())
        )

    def digests(self) -> dict[str, str]:
        """Ranks of a group → a digest of its collectives in order. Messages between two ranks are left out: theirs differ."""
        found = {}
        for ranks, entries in self.order.items():
            same = [entry for entry in entries if not entry.startswith(("send", "recv"))]
            found[ranks] = hashlib.blake2b("\n".join(same).encode(), digest_size=8).hexdigest()
        return found
