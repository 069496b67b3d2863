"""Collectives as the strategies need them.

gloo's `reduce_scatter_tensor` is an all-reduce inside and moves twice the bytes. An all-to-all and a local sum move the right
number, and sum in rank order, so that the result is the same on every run.

A `group` of None is this rank alone: nothing is sent.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from .telemetry.comm_counter import stands_for
from .telemetry.current import now, wait_on

#: Waits for an operation and returns its result.
Pending = Callable[[], torch.Tensor]
#: The same for several results.
Arrivals = Callable[[], Sequence[torch.Tensor]]


def all_reduce(flat: torch.Tensor, group: dist.ProcessGroup) -> Pending:
    """Start to sum `flat` [n] over `group` in place. 2·n·(N−1)/N elements leave each rank."""
    since = now()
    work = dist.all_reduce(flat, group=group, async_op=True)

    def wait() -> torch.Tensor:
        wait_on(work.wait, "all_reduce", group, since)
        return flat

    return wait


def reduce_scatter(rows: torch.Tensor, group: dist.ProcessGroup | None, into: torch.Tensor | None = None) -> Pending:
    """Start to sum `rows` [N, n] over `group`, in their dtype, by the backend's reduce-scatter. n·(N−1) elements leave each rank.

    The result [n] (in `into`, if given) is this rank's row. `into` may be this rank's row itself.
    """
    if group is None:
        return _only_row(rows, into)
    since = now()
    mine = rows.new_empty(rows.shape[1]) if into is None else into
    work = dist.reduce_scatter_single(mine, rows.flatten(), group=group, async_op=True)

    def wait() -> torch.Tensor:
        wait_on(work.wait, "reduce_scatter", group, since)
        return mine

    return wait


def exchange_and_sum(rows: torch.Tensor, group: dist.ProcessGroup | None, into: torch.Tensor | None = None) -> Pending:
    """The same by an all-to-all and a local sum, for gloo.

    Half precision is summed in fp32, so that the rounding error does not grow with N; without `into` the result is fp32.
    """
    if group is None:
        return _only_row(rows, into)
    half = rows.dtype.itemsize == 2
    with stands_for("reduce_scatter"):
        arrival = all_to_all(rows, group, "reduce_scatter")

    def wait() -> torch.Tensor:
        received = arrival()
        if half or into is None:
            total = received.sum(0, dtype=torch.float32 if half else None)
            return total if into is None else into.copy_(total)
        return torch.sum(received, 0, out=into)

    return wait


def all_to_all(rows: torch.Tensor, group: dist.ProcessGroup, what: str = "all_to_all") -> Pending:
    """Start to send each rank of `group` an equal part of `rows` [N·k, …], in their order. The result has each rank's part for this one.

    All but this rank's own part leaves it. `what`: its name in traces.
    """
    since = now()
    received = torch.empty_like(rows)
    work = dist.all_to_all_single(received, rows, group=group, async_op=True)

    def wait() -> torch.Tensor:
        wait_on(work.wait, what, group, since)
        return received

    return wait


def _only_row(rows: torch.Tensor, into: torch.Tensor | None) -> Pending:
    (mine,) = rows
    return lambda: mine if into is None else into.copy_(mine)


def all_gather(mine: torch.Tensor, group: dist.ProcessGroup | None, into: torch.Tensor | None = None) -> Pending:
    """Start to gather every rank's `mine` [n]. The result is [N, n] (`into`, if given). n·(N−1) elements leave each rank."""
    if group is None:
        alone = mine.view(1, -1) if into is None else into.copy_(mine.view(1, -1))
        return lambda: alone
    rows = mine.new_empty(dist.get_world_size(group), mine.numel()) if into is None else into
    since = now()
    work = dist.all_gather_single(rows.view(-1), mine, group=group, async_op=True)

    def wait() -> torch.Tensor:
        wait_on(work.wait, "all_gather", group, since)
        return rows

    return wait


def all_gather_together(
    mine: Sequence[torch.Tensor], group: dist.ProcessGroup, into: Sequence[torch.Tensor]
) -> Arrivals:
    """Start to gather several tensors [n] in one call, each into its own [N, n] of `into`. NCCL runs them as one kernel."""
    since = now()
    work = group.all_gather_single_coalesced([rows.view(-1) for rows in into], list(mine))

    def wait() -> Sequence[torch.Tensor]:
        wait_on(work.wait, "all_gather", group, since)
        return into

    return wait


def send(tensor: torch.Tensor, peer: int, group: dist.ProcessGroup, tag: int = 0) -> Pending:
    """Start to send `tensor` to the rank `peer` of `group`. It must be contiguous and must not change until `peer` has received it."""
    since = now()
    work = dist.isend(tensor, group=group, tag=tag, group_dst=peer)
    return _message(work, tensor, "send", group, since)


def receive(
    into: torch.Tensor, peer: int, group: dist.ProcessGroup, tag: int = 0, limit: timedelta | None = None
) -> Pending:
    """Start to receive into `into`, contiguous, the next tensor that the rank `peer` of `group` sends with the same `tag`.

    Messages of a tag keep their order. `limit`: the longest wait for it; None: the group's.
    """
    since = now()
    work = dist.irecv(into, group=group, tag=tag, group_src=peer)
    return _message(work, into, "receive", group, since, limit)


def _message(
    work: dist.Work | None,
    tensor: torch.Tensor,
    what: str,
    group: dist.ProcessGroup,
    since: Any,
    limit: timedelta | None = None,
) -> Pending:
    assert work is not None, "this rank is not in the group"
    arrival: Callable[[], object] = work.wait if limit is None else partial(work.wait, limit)

    def wait() -> torch.Tensor:
        wait_on(arrival, what, group, since)
        return tensor

    return wait


def shift(tensor: torch.Tensor, group: dist.ProcessGroup) -> Pending:
    """Start to send `tensor` to the next rank of `group`, in a ring. The result is the previous rank's tensor, of the same shape.

    `tensor` must be contiguous and must not change until the result has arrived.
    """
    received = torch.empty_like(tensor)
    rank, size = group.rank(), group.size()
    messages = [
        dist.P2POp(dist.isend, tensor, group=group, group_peer=(rank + 1) % size),
        dist.P2POp(dist.irecv, received, group=group, group_peer=(rank - 1) % size),
    ]
    since = now()
    works = dist.batch_isend_irecv(messages)

    def wait() -> torch.Tensor:
        for work in works:
            wait_on(work.wait, "shift", group, since)
        return received

    return wait
