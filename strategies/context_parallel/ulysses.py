"""Ulysses: ranks exchange heads for positions around attention, so that each attends with some heads over all positions (2309.14509).

Each of U ranks holds 1/U of the positions with all heads. An all-to-all turns that into all positions with 1/U of the heads,
attention runs as on one rank, and another all-to-all reverts it. Heads must be a multiple of U. Rank u takes the u-th part of heads and
key/value heads, so that groups of query heads stay with their key head. If U does not divide the number K of key/value heads, each is
copied lcm(K, U)/K times before, and the gradients of its copies are summed after.

Traffic per rank, layer and micro-batch, with n = batch · sequence/U · head size · (2·heads + 2·key heads), copies included:
n(U−1)/U elements forward and as many backward. It falls with U, while a ring's traffic does not. Memory: as on one rank, ÷ U.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..layout import Refusal
from ..telemetry.current import wait_on

#: q [batch, heads, queries, size]; k and v with a number of heads that divides q's → causal attention's output, of q's shape.
#: If documents are packed, its keyword argument `starts` [batch, whole sequence] says at which places they start.
Attend = Callable[..., Tensor]


def ulysses_attention(
    q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, attend: Attend, starts: Tensor | None = None
) -> Tensor:
    """`attend` over the positions of all ranks of `group`, which hold consecutive parts of them.

    q [batch, heads, sequence/U, size]; k and v with a number of heads that divides q's. Returns q's shape. `starts` are passed on:
    those of the whole sequence are the same on all ranks.
    """
    if starts is not None:
        attend = functools.partial(attend, starts=starts)
    parts = group.size()
    if q.shape[1] % parts:
        raise Refusal(
            "layout.ulysses",
            f"{q.shape[1]} heads are not divisible by {parts}.",
            "Use a divisor of the number of heads.",
        )
    copies = math.lcm(k.shape[1], parts) // k.shape[1]
    if copies > 1:
        k, v = (x.repeat_interleave(copies, dim=1) for x in (k, v))
    # One exchange for all three: the u-th part of each, side by side.
    packed = torch.cat([x.unflatten(1, (parts, -1)) for x in (q, k, v)], dim=2).flatten(1, 2)
    heads = [x.shape[1] // parts for x in (q, k, v)]
    whole = attend(*_ToHeads.apply(packed, group).split(heads, dim=1))  # type: ignore[no-untyped-call]
    out: Tensor = _ToPositions.apply(whole, group)  # type: ignore[no-untyped-call]
    return out


def to_heads(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[batch, heads, sequence/U, size] → [batch, heads/U, sequence, size]."""
    rows = x.unflatten(1, (group.size(), -1)).movedim(1, 0)
    return _exchange(rows, group).movedim(0, 2).flatten(2, 3)


def to_positions(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[batch, heads/U, sequence, size] → [batch, heads, sequence/U, size]: the inverse of `to_heads`."""
    rows = x.unflatten(2, (group.size(), -1)).movedim(2, 0)
    return _exchange(rows, group).movedim(0, 1).flatten(1, 2)


def _exchange(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Row r of the result is rank r's row for this rank."""
    received = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
    rows = rows.contiguous()
    wait_on(lambda: dist.all_to_all_single(received, rows, group=group), "all_to_all", group)
    return received


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return to_heads(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return to_positions(grad, ctx.group), None


class _ToPositions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return to_positions(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return to_heads(grad, ctx.group), None
