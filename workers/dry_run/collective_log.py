"""The collectives and messages that one rank starts in a step: their logical bytes by axis, and their order."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ...strategies.dispatch_mode import operator_name
from ...strategies.mesh import Mesh
from ...strategies.telemetry.comm_counter import Traffic, axes_of, group_of, tensors_in
from .report import Meeting, Message


class CollectiveLog(Traffic):
    """Logs while it is entered. `order` has one entry per collective of each group: operator, dtype and elements."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(axes_of(mesh))
        self.order: dict[str, list[str]] = {}
        self.messages: list[Message] = []
        self.meetings: dict[str, list[Meeting]] = {}
        self._batches = itertools.count()
        self._batch: int | None = None  # the number of the batch whose messages are being started

    def begin_step(self) -> None:
        self.moved.clear()
        self.order.clear()
        self.messages.clear()
        self.meetings.clear()

    @contextmanager
    def logging(self) -> Iterator["CollectiveLog"]:
        """Enter this log, and see which messages are started in one batch."""
        given = dist.batch_isend_irecv

        def batched(operations: list[dist.P2POp]) -> list[dist.Work]:
            self._batch = next(self._batches)
            try:
                return given(operations)
            finally:
                self._batch = None

        setattr(dist, "batch_isend_irecv", batched)  # noqa: B010  (mypy: a function of a module)
        try:
            with self:
                yield self
        finally:
            setattr(dist, "batch_isend_irecv", given)  # noqa: B010

    def _count(self, func: Any, args: Sequence[Any]) -> None:
        super()._count(func, args)
        name = operator_name(func).rpartition("::")[2]
        if name in ("wait_tensor", "barrier", "monitored_barrier_"):
            return
        group, tensors = group_of(args), tensors_in(args)
        ranks = dist.get_process_group_ranks(group)
        if group is not dist.group.WORLD and len(ranks) > 1:  # the world alone has gloo
            _refuse_unsendable(operator_name(func), ranks, tensors)
        if name in ("send", "recv_"):
            batch = next(self._batches) if self._batch is None else self._batch
            what, other, (tensor,) = name.rstrip("_"), ranks[args[2]], tensors
            self.messages.append(Message(what, other, tensor.numel(), str(tensor.dtype), batch))  # type: ignore[arg-type]
            return
        what = f"{name} {tensors[0].dtype} {sum(t.numel() for t in tensors)}" if tensors else name
        group_ranks = ",".join(map(str, ranks))
        self.order.setdefault(group_ranks, []).append(what)
        self.meetings.setdefault(group_ranks, []).append(Meeting(what, next(self._batches)))

    def digests(self) -> dict[str, str]:
        """Ranks of a group → a digest of its collectives in order."""
        return {
            ranks: hashlib.blake2b("\n".join(entries).encode(), digest_size=8).hexdigest()
            for ranks, entries in self.order.items()
        }


def _refuse_unsendable(name: str, ranks: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
    """Groups of a mesh's axes are NCCL's on GPUs (`strategies/process_groups.py`). It takes what is on the device, and is contiguous.

    Functional collectives copy what is not.
    """
    for tensor in tensors:
        what = f"{name} over ranks {list(ranks)} has a {tensor.dtype} tensor"
        if tensor.device.type == "cpu":
            raise RuntimeError(f"{what} on the host, which NCCL does not send")
        if name.startswith("c10d::") and not tensor.is_contiguous():
            raise RuntimeError(
                f"{what} with strides {tensor.stride()}, which NCCL refuses, or sends as it lies in memory"
            )
