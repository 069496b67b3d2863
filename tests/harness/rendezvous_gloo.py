"""Gloo with NCCL's semantics of messages: a send completes only when the other rank receives it.

The messages of a group run one batch after the other, in a thread that stands for the group's stream; what is not batched is a batch of its
own. A batch is done when all its messages have arrived, and each receiver has acknowledged. So ranks that wait for each other on NCCL do so
here too, and a buffer that is changed before `wait` is sent changed.
"""

import queue
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .patience import PATIENCE_S
from .ranks import group


class NeverReceived(RuntimeError):
    """A message that did not complete in time."""


@dataclass
class Message:
    """`peer` is a rank of the world."""

    sends: bool
    tensor: torch.Tensor
    peer: int
    tag: int

    def __str__(self) -> str:
        return f"{'send to' if self.sends else 'receive from'} rank {self.peer}"


class RendezvousWork(dist.Work):
    """A batch of messages."""

    def __init__(self, messages: Sequence[Message], timeout: timedelta) -> None:
        super().__init__()
        self.messages, self._timeout = messages, timeout
        self.done, self.error = threading.Event(), None

    def wait(self, *_: Any) -> bool:
        if not self.done.wait(self._timeout.total_seconds()):
            raise NeverReceived(f"after {self._timeout}: {', '.join(map(str, self.messages))}")
        if self.error is not None:
            raise NeverReceived(f"{', '.join(map(str, self.messages))}: {self.error}") from self.error
        return True

    def is_completed(self) -> bool:
        return self.done.is_set()


class Rendezvous:
    """What replaces torch's functions in this process, which does nothing else. Made on all ranks of the world.

    A message may take `timeout`; what gloo does by itself, as forming its groups when ranks come at different times, may take as long as
    anything in the tests.
    """

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._send, self._receive = dist.isend, dist.irecv
        forming = timedelta(seconds=PATIENCE_S)
        self._data, self._acks = (dist.new_group(backend="gloo", timeout=forming) for _ in range(2))
        self._streams: dict[dist.ProcessGroup, queue.SimpleQueue[RendezvousWork]] = {}

    def install(self) -> None:
        """Replace torch's functions."""
        for module in (dist, distributed_c10d):
            replaced: Any = module
            replaced.isend, replaced.irecv = self.isend, self.irecv
            replaced.send, replaced.recv = self._waits_for(self.isend), self._waits_for(self.irecv)
            replaced.batch_isend_irecv = self.batch

    def isend(
        self, tensor: torch.Tensor, dst: int | None = None, group: Any = None, tag: int = 0, **to: int
    ) -> dist.Work:
        return self._start(group, [self._message(True, tensor, group, tag, dst, to.get("group_dst"))])

    def irecv(
        self, tensor: torch.Tensor, src: int | None = None, group: Any = None, tag: int = 0, **of: int
    ) -> dist.Work:
        return self._start(group, [self._message(False, tensor, group, tag, src, of.get("group_src"))])

    def batch(self, operations: Sequence[dist.P2POp]) -> list[dist.Work]:
        messages = [
            self._message(one.op == self.isend, one.tensor, one.group, one.tag, None, one.group_peer)
            for one in operations
        ]
        return [self._start(operations[0].group, messages)]

    @staticmethod
    def _waits_for(start: Callable[..., dist.Work]) -> Callable[..., None]:
        def waiting(*args: Any, **kwargs: Any) -> None:
            start(*args, **kwargs).wait()

        return waiting

    @staticmethod
    def _message(
        sends: bool, tensor: torch.Tensor, group: Any, tag: int, rank: int | None, group_rank: int | None
    ) -> Message:
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        peer = rank if rank is not None else ranks[group_rank]  # type: ignore[index]
        # Messages of all groups share one group of gloo's.
        return Message(sends, tensor.detach(), peer, zlib.crc32(repr((sorted(ranks), tag)).encode()) & 0xFFFF)

    def _start(self, group: Any, messages: Sequence[Message]) -> dist.Work:
        group = group or dist.group.WORLD
        if group not in self._streams:
            self._streams[group] = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(self._streams[group],), daemon=True).start()
        work = RendezvousWork(messages, self._timeout)
        self._streams[group].put(work)
        return work

    def _run(self, stream: "queue.SimpleQueue[RendezvousWork]") -> None:
        while True:
            work = stream.get()
            try:
                self._exchange(work.messages)
            except RuntimeError as error:
                work.error = error  # and so this stream makes no progress any more
                work.done.set()
                return
            work.done.set()

    def _exchange(self, messages: Sequence[Message]) -> None:
        """All messages of a batch progress together."""
        acks = [torch.zeros(1) for _ in messages]
        arriving, leaving = [], []
        for message, ack in zip(messages, acks, strict=True):
            if message.sends:
                leaving.append(self._send(message.tensor, message.peer, self._data, message.tag))
                leaving.append(self._receive(ack, message.peer, self._acks, message.tag))
            else:
                arriving.append((message, ack, self._receive(message.tensor, message.peer, self._data, message.tag)))
        for message, ack, work in arriving:
            work.wait()
            leaving.append(self._send(ack, message.peer, self._acks, message.tag))
        for work in leaving:
            work.wait()


def group_of_rendezvous(rank: int, world: int, port: int, timeout_s: float, kind: str = "cpu") -> torch.device:
    """As `harness.ranks.group`, and from then on messages complete when they are received."""
    device: torch.device = group(rank, world, port, kind)
    Rendezvous(timedelta(seconds=timeout_s)).install()
    return device
