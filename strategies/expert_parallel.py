"""Expert parallelism: the experts of each layer are distributed over a group of neighbouring replicas (GShard, 2006.16668, section 3).

Each rank routes its own tokens, sends every row to the rank that holds its expert, and gets the result back. That is two uneven
all-to-alls per layer in the forward pass and two in the backward pass, each of k·n·dim·(E−1)/E elements out of a rank with n tokens
(when they are distributed evenly), beside the row counts (experts integers).

The sizes of uneven all-to-alls must be known to the host, which waits for the device once per layer. With a capacity, devices other
than CPUs exchange buffers of fixed size instead (2006.16668, algorithm 1): every expert has as many rows as it could get, empty ones
are zeros, and no host waits. That is up to `capacity_factor` times the elements, and times the context ranks, of which each may have all
tokens of an expert.

Memory per rank: expert parameters, gradients and optimizer state ÷ E, before ZeRO. The exchange itself sums an expert's gradient
over its group's tokens, so it is summed over the expert replicas only. Nothing is approximated: every row goes to the same expert
as on one process.

Where two passes run by turns (`strategies/pipeline_parallel/overlapped_pair.py`), an exchange of rows hands over while it is under way.
The row counts do not: they are few numbers, and the next exchange cannot start without them.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .collectives import all_gather
from .context_parallel.apply import Positions, positions_of, positions_on
from .mesh import EXPERT_REPLICA, Mesh
from .param_shard import DimShard, shard_manually
from .telemetry.current import done_at, now, wait_on
from .turns import Turns

#: rows [n, dim] sorted by expert, counts [experts held here] → results [n, dim]; without counts rows [experts held here, n, dim] → the same
Compute = Callable[[Tensor, Tensor | None], Tensor]


@runtime_checkable
class Mixture(Protocol):
    """A layer of experts: the own parameters of `experts` are stacked [experts, …].

    The layer uses these attributes:

    - `exchange` passes rows to `experts`.
    - `share()` is the weight of its auxiliary losses, which are sums over tokens.
    - `over_sequence` adds up counts of a sequence's tokens over the `sequence_ranks` that share each sequence.
    - `on_whole` decides on whole sequences: (this rank's tokens [batch, seq, …] int64, decision) → this rank's part of the decision.
    - `positions` are those of its tokens in the whole sequence.
    - `tally` is called after every forward pass without gradients.
    """

    experts: nn.Module
    exchange: Callable[[Tensor, Tensor, int | None, Compute], Tensor]
    share: Callable[[], float]
    over_sequence: Callable[[Tensor], Tensor]
    sequence_ranks: int
    on_whole: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]
    positions: Positions
    tally: Callable[[Tensor], None]


class Tally:
    """How evenly the mixtures of this rank routed in validation: sums over tokens and layers, in float64.

    `mixes`: whether the whole model has mixtures. A pipeline's stage may have none of them.
    """

    def __init__(self, mesh: Mesh, mixes: bool = False) -> None:
        self._mesh, self._mixes = mesh, mixes
        self.clear()

    def clear(self) -> None:
        """Reset the sums, for example after a schedule that tries out shapes."""
        self._sums = torch.zeros(4, dtype=torch.float64, device=self._mesh.device)

    def __call__(self, sums: Tensor) -> None:
        """Add `sums` [4] of one layer: balance loss, z-loss, dropped choices ÷ top_k, tokens."""
        self._sums += sums

    def means(self) -> dict[str, float]:
        """Means over all layers and tokens of all ranks, without coefficients; empty without mixtures. Collective over the world."""
        if not self._mixes:
            return {}
        sums = self._sums if self._mesh.index("tensor") == 0 else torch.zeros_like(self._sums)
        if self._mesh.layout.world_size > 1:
            dist.all_reduce(sums)
        balance, z, dropped, tokens = sums.tolist()
        return {"balance_loss": balance / tokens, "router_z_loss": z / tokens, "dropped": dropped / tokens}


def mixes(model: nn.Module) -> bool:
    """Whether the model has mixtures of experts."""
    return any(isinstance(module, Mixture) for module in model.modules())


def apply_experts(part: nn.Module, mesh: Mesh, share: Callable[[], float], tally: Tally) -> None:
    """Distribute the experts of `part` over the expert axis. `share()` is the factor of a token's loss in a backward pass."""
    for module in part.modules():
        if not isinstance(module, Mixture):
            continue
        module.tally = tally
        # Under tensor parallelism each of t ranks adds the whole auxiliary gradient, and their gradients are summed.
        module.share = _divided(share, mesh.size("tensor"))
        if mesh.layout.degrees["context"] > 1:
            module.over_sequence, module.sequence_ranks = _summed(mesh.group("context")), mesh.size("context")
            module.on_whole = functools.partial(on_whole, mesh=mesh)
            module.positions = positions_on(mesh)
        if mesh.layout.expert > 1:
            for name, _ in list(module.experts.named_parameters(recurse=False)):
                cut = DimShard("expert", 0, mesh.size("expert"), mesh.index("expert"))
                shard_manually(module.experts, name, cut, EXPERT_REPLICA)
            module.exchange = Exchange(mesh.group("expert"))


def _divided(share: Callable[[], float], parts: int) -> Callable[[], float]:
    return lambda: share() / parts


def _summed(group: dist.ProcessGroup) -> Callable[[Tensor], Tensor]:
    def over_group(counts: Tensor) -> Tensor:
        wait_on(lambda: dist.all_reduce(counts, group=group), "all_reduce", group)
        return counts

    return over_group


def on_whole(mine: Tensor, decide: Callable[[Tensor], Tensor], mesh: Mesh) -> Tensor:
    """This rank's part of `decide` on whole sequences, of which it has `mine` [batch, seq/C, k] (integers below 2³¹).

    All C context ranks decide the same. A rank receives (C−1)·k 4-byte integers per token of its own, which is little beside a token's
    dim numbers.
    """
    ranks, layout = mesh.size("context"), mesh.layout
    parts = all_gather(mine.int().flatten(), mesh.group("context"))().view(ranks, *mine.shape)
    positions = [positions_of(layout, rank, ranks * mine.shape[1], mine.device) for rank in range(ranks)]
    whole = mine.new_empty(mine.shape[0], ranks * mine.shape[1], *mine.shape[2:])
    for part, held in zip(parts, positions, strict=True):
        whole[:, held] = part.to(mine.dtype)
    return decide(whole)[:, positions[mesh.index("context")]]


class Exchange:
    """Sends rows to the ranks of their experts and back. Rank r of the group holds the experts r·m … (r+1)·m−1.

    `turns`: of the passes that run by turns, if there are such.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)
        self.turns: Turns | None = None

    def __call__(self, rows: Tensor, counts: Tensor, most_rows: int | None, experts: Compute) -> Tensor:
        """`rows` [n, dim] sorted by expert, `counts` [all experts] int64 → `experts`' results [n, dim], in the same order.

        `most_rows`: the most rows of an expert, the same on all ranks; None if it is not known. The last n − Σ counts rows belong to no
        expert: they are not sent, and their results are zeros.
        """
        if most_rows is not None and fixed_sizes(rows.device):
            return self._fixed(rows, counts, most_rows, experts)
        return self._uneven(rows, counts, experts)

    def _uneven(self, rows: Tensor, counts: Tensor, experts: Compute) -> Tensor:
        arriving = torch.empty_like(counts)
        wait_on(lambda: dist.all_to_all_single(arriving, counts, group=self._group), "all_to_all", self._group)
        arriving = arriving.view(self._ranks, -1)  # [from rank, expert held here]
        out, into = torch.stack([counts.view(self._ranks, -1).sum(1), arriving.sum(1)]).tolist()
        received = all_to_all(rows[: sum(out)], out, into, self._group, self.turns)
        order = _by_expert(arriving, len(received))
        done = experts(received.index_select(0, order), arriving.sum(0))
        back = all_to_all(done.index_select(0, order.argsort()), into, out, self._group, self.turns)
        of_none = back.new_zeros(len(rows) - len(back), rows.shape[1])
        return torch.cat([back, of_none]) if len(of_none) else back

    def _fixed(self, rows: Tensor, counts: Tensor, most_rows: int, experts: Compute) -> Tensor:
        dim, every = rows.shape[1], len(counts) * most_rows
        slots = _slots(counts, most_rows, len(rows))
        out = rows.new_zeros(every + 1, dim).index_copy(0, slots, rows)[
            :every
        ]  # the last slot is for rows of no expert
        even = [every // self._ranks] * self._ranks
        received = all_to_all(out, even, even, self._group, self.turns).view(self._ranks, -1, most_rows, dim)
        done = experts(received.transpose(0, 1).reshape(-1, self._ranks * most_rows, dim), None)
        done = done.view(-1, self._ranks, most_rows, dim).transpose(0, 1).reshape(every, dim)
        back = all_to_all(done, even, even, self._group, self.turns)
        return torch.cat([back, back.new_zeros(1, dim)]).index_select(0, slots)


def fixed_sizes(device: torch.device) -> bool:
    """Whether to exchange buffers of fixed size. A CPU has its counts at hand, and a larger exchange would cost it more."""
    return device.type != "cpu"


def _slots(counts: Tensor, most_rows: int, rows: int) -> Tensor:
    """Where each of the `rows`, sorted by expert, goes in a buffer [experts, most_rows]: one behind the end if it has no expert."""
    ends = counts.cumsum(0)
    place = torch.arange(rows, device=counts.device)
    expert = torch.searchsorted(ends, place, right=True)
    starts = torch.cat([ends - counts, ends[-1:]])
    return torch.where(expert < len(counts), expert * most_rows + place - starts[expert], len(counts) * most_rows)


def _by_expert(arriving: Tensor, rows: int) -> Tensor:
    """The permutation that sorts rows by expert.

    They arrived sorted by rank and then by expert, in numbers `arriving` [ranks, experts], which the host knows to be `rows` in all.
    """
    expert = torch.arange(arriving.shape[1], device=arriving.device).repeat(arriving.shape[0])
    return expert.repeat_interleave(arriving.flatten(), output_size=rows).argsort(stable=True)


def exchanges(parts: Iterable[nn.Module]) -> list[Exchange]:
    """Those of the distributed experts in `parts`."""
    found = (getattr(module, "exchange", None) for part in parts for module in part.modules())
    return [exchange for exchange in found if isinstance(exchange, Exchange)]


def all_to_all(
    rows: Tensor, out: list[int], into: list[int], group: dist.ProcessGroup, turns: Turns | None = None
) -> Tensor:
    """Send `out[r]` consecutive rows of [Σ out, dim] to each rank r; the result [Σ into, dim] holds `into[r]` rows from each r.

    While it is under way, forward or backward, the pass hands over by `turns`.
    """
    received: Tensor = _AllToAll.apply(rows, out, into, group, turns)  # type: ignore[no-untyped-call]
    return received


class _AllToAll(torch.autograd.Function):
    """The all-to-all whose backward pass sends gradients back to the rows' senders."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, out: list[int], into: list[int], group: dist.ProcessGroup, turns: Turns | None
    ) -> Tensor:
        ctx.out, ctx.into, ctx.group, ctx.turns = out, into, group, turns
        return _send(rows, out, into, group, turns)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _send(grads[0], ctx.into, ctx.out, ctx.group, ctx.turns), None, None, None, None


def _send(rows: Tensor, out: list[int], into: list[int], group: dist.ProcessGroup, turns: Turns | None) -> Tensor:
    received = rows.new_empty(sum(into), *rows.shape[1:])
    rows = rows.contiguous()
    if turns is None or not turns.shared:
        wait_on(lambda: dist.all_to_all_single(received, rows, into, out, group=group), "all_to_all", group)
        return received
    since = now()
    work = dist.all_to_all_single(received, rows, into, out, group=group, async_op=True)
    done = done_at(work)
    turns.yield_turn()
    wait_on(work.wait, "all_to_all", group, since, done)
    return received
