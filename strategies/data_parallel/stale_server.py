"""Stale synchronous parallel: workers compute with values that miss at most some clocks of others' updates (Ho et al., NIPS 2013).

A worker's clock is its number of pushes. It may pull at clock c if every living worker has pushed at least c − `bound` times
(section 2 of the paper); with a bound of None it never waits (asynchronous; Li et al., OSDI 2014, section 3.4). A push is one update,
applied when it arrives. The server records the order of pushes and pulls, so that a serial replay computes the same bits.

Each worker has a group of two with each server: a worker that dies, leaves, or is silent for the group's time-out ends that group only.
It no longer counts, and the others go on. The slowest living worker never waits, so that no two wait for each other.

No spec asks for it: the training loop has a collective over all ranks in every step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Final, Literal

import torch
import torch.distributed as dist

LEAVE: Final = 0
PUSH: Final = 1
PULL: Final = 2

#: Changes a server's values in place by a worker's gradient, of the same shape [n].
Update = Callable[[torch.Tensor], object]


@dataclass(frozen=True)
class Entry:
    """One line of a server's record: what `worker` did at its `clock`. Lines are in the order in which they took effect."""

    kind: Literal["push", "pull"]
    worker: int
    clock: int


class StaleServer:
    """Serves `values` [n] to workers; `groups`: worker → the group of it and this server."""

    def __init__(
        self, values: torch.Tensor, update: Update, groups: Mapping[int, dist.ProcessGroup], bound: int | None
    ) -> None:
        self.values, self._update, self._groups, self._bound = values, update, groups, bound
        self._clocks = dict.fromkeys(groups, 0)  # of the living workers
        self._changed = Condition()
        self.record: list[Entry] = []
        self.lost: dict[int, str] = {}  # worker that did not leave by itself → the error

    def serve(self) -> None:
        """Serve until every worker has left or is lost."""
        threads = [Thread(target=self._serve, args=(worker,), daemon=True) for worker in self._groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, worker: int) -> None:
        try:
            while self._answer(worker):
                pass
        except RuntimeError as error:  # gloo's, for a connection that ended and for its time-out
            self.lost[worker] = str(error)
        finally:
            with self._changed:
                del self._clocks[worker]
                self._changed.notify_all()

    def _answer(self, worker: int) -> bool:
        """Answer one request. Returns False if the worker leaves."""
        group = self._groups[worker]
        request = torch.empty(1, dtype=torch.int64)
        _receive(request, group)
        if request.item() == PUSH:
            gradient = torch.empty_like(self.values)
            _receive(gradient, group)
            self._push(worker, gradient)
        elif request.item() == PULL:
            _send(self._pull(worker), group)
        return request.item() != LEAVE

    def _push(self, worker: int, gradient: torch.Tensor) -> None:
        with self._changed:
            self._update(gradient)
            self.record.append(Entry("push", worker, self._clocks[worker]))
            self._clocks[worker] += 1
            self._changed.notify_all()

    def _pull(self, worker: int) -> torch.Tensor:
        with self._changed:
            self._changed.wait_for(lambda: self._may_pull(worker))
            self.record.append(Entry("pull", worker, self._clocks[worker]))
            return self.values.clone()

    def _may_pull(self, worker: int) -> bool:
        return self._bound is None or self._clocks[worker] - min(self._clocks.values()) <= self._bound


class StaleWorker:
    """A worker's side: `groups` with each server in turn, and the number of values that each server has.

    Methods raise `RuntimeError` if a server is lost, or does not answer within its group's time-out.
    """

    def __init__(self, groups: Sequence[dist.ProcessGroup], sizes: Sequence[int], dtype: torch.dtype) -> None:
        self._groups, self._sizes, self._dtype = groups, sizes, dtype

    def pull(self) -> list[torch.Tensor]:
        """Each server's values [n]. Waits where another worker is too far behind."""
        for group in self._groups:
            _request(PULL, group)
        found = [torch.empty(size, dtype=self._dtype) for size in self._sizes]
        for values, group in zip(found, self._groups, strict=True):
            _receive(values, group)
        return found

    def push(self, gradients: Sequence[torch.Tensor]) -> None:
        """Send each server its gradient [n]; the worker's clock is one more then."""
        for gradient, group in zip(gradients, self._groups, strict=True):
            _request(PUSH, group)
            _send(gradient, group)

    def leave(self) -> None:
        """End the exchange with every server."""
        for group in self._groups:
            _request(LEAVE, group)


def pair_groups(workers: Sequence[int], servers: Sequence[int]) -> dict[int, dist.ProcessGroup]:
    """Peer → the group of it and this rank. Collective over the world.

    Torch names a group that only its members form by how many groups a process has, and these numbers differ here: so all form each.
    """
    rank = dist.get_rank()
    found = {}
    for server in servers:
        for worker in workers:
            group = dist.new_group([server, worker], group_desc="stale_server")
            if rank in (server, worker):
                found[worker if rank == server else server] = group
    return found


def _request(kind: int, group: dist.ProcessGroup) -> None:
    _send(torch.tensor([kind]), group)


def _send(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.send(tensor, group=group, group_dst=1 - group.rank())


def _receive(into: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.recv(into, group=group, group_src=1 - group.rank())
