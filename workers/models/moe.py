"""The mixture-of-experts family: Llama's blocks whose feed-forward is `top_k` of `experts` SwiGLUs, chosen per token by a router.
Beside them `shared_experts` of the same width may process every token; they are one SwiGLU of their width together.

A token's experts, the tokens that a capacity drops and the weights of the auxiliary losses depend on the token's own sequence
alone, never on a micro-batch or a rank's share; with packed documents, on its document (`document_routing.py`). So every layout routes
like one process. With `balance: bias` they depend on biases too, which `strategies/expert_balance.py` updates after each step.

Sources: Shazeer et al. (1701.06538), GShard (2006.16668), Switch (2101.03961), ST-MoE (2202.08906), Mixtral (2401.04088), OLMoE
(2409.02060), DeepSeek-V3 (2412.19437).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor.parallel import ParallelStyle

from ...strategies.context_parallel.apply import Positions
from .attention import first_positions
from .document_routing import Documents, balance_loss_within, documents_of, kept_within, z_loss_within
from .experts import Experts
from .llama import Llama, SwiGLU
from .presets import Architecture
from .tensor_plan import MixtureParallel, shared_plan

#: Makes a decision on the tokens [batch, seq, …] of whole sequences: (this rank's part of them, decision) → its part of the decision.
OnWhole = Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]

#: (rows, counts) → results, as `Experts.forward` defines them.
Compute = Callable[[Tensor, Tensor | None], Tensor]

#: (rows [n, dim] sorted by expert, counts [experts] int64, the most rows of an expert or None, experts) → rows' results in the same
#: order. The last n − Σ counts rows belong to no expert: their results are zeros.
Exchange = Callable[[Tensor, Tensor, int | None, Compute], Tensor]


@dataclass(frozen=True)
class Routing:
    """The routing of tokens: `chosen` [batch, seq, k] int64, best first; `weights` [batch, seq, k] in fp32 or wider; `kept` is bool."""

    chosen: Tensor
    weights: Tensor
    kept: Tensor


def here_whole(mine: Tensor, decide: Callable[[Tensor], Tensor]) -> Tensor:
    """`decide` for sequences that are whole on this rank."""
    return decide(mine)


def route(
    logits: Tensor,
    top_k: int,
    softmax: str,
    capacity_factor: float | None,
    on_whole: OnWhole = here_whole,
    bias: Tensor | None = None,
) -> Routing:
    """Choose `top_k` experts for each of the `logits` [batch, seq, experts]. `on_whole` decides which choices are kept.

    A chosen expert's weight is the softmax over the chosen logits (`chosen`, Mixtral) or over all (`all`, Switch and OLMoE). With a
    `bias` [experts] logits are logarithms of affinities, and the experts of the highest affinity + bias are chosen.
    """
    preferred = logits if bias is None else logits.detach().exp() + bias
    chosen = preferred.topk(top_k, dim=-1).indices
    weights = logits.gather(-1, chosen).softmax(-1) if softmax == "chosen" else logits.softmax(-1).gather(-1, chosen)
    if capacity_factor is None:
        return Routing(chosen, weights, torch.ones_like(chosen, dtype=torch.bool))
    kept = functools.partial(_kept, experts=logits.shape[-1], factor=capacity_factor)
    return Routing(chosen, weights, on_whole(chosen, kept))


def _kept(chosen: Tensor, experts: int, factor: float) -> Tensor:
    """Which choices [batch, whole seq, k] are kept if each expert takes an equal share of the sequence, times `factor`."""
    _, seq, top_k = chosen.shape
    return within_capacity(chosen, experts, capacity_of(seq, top_k, experts, factor))


def capacity_of(seq: int, top_k: int, experts: int, factor: float) -> int:
    """The most choices of a whole sequence that an expert takes."""
    return math.ceil(factor * seq * top_k / experts)


def within_capacity(chosen: Tensor, experts: int, capacity: int) -> Tensor:
    """Which of the choices [batch, seq, k] an expert keeps: its first `capacity` of each sequence; the others are dropped.

    All first choices come before all second ones, then earlier positions before later ones (2006.16668, algorithm 1).
    """
    batch, seq, top_k = chosen.shape
    in_order = chosen.transpose(1, 2).reshape(batch, top_k * seq)
    before = F.one_hot(in_order, experts).cumsum(1).gather(2, in_order.unsqueeze(2)) - 1
    return (before < capacity).view(batch, top_k, seq).transpose(1, 2)


class Router(nn.Module):
    """Logits [batch, seq, experts] = x · weightᵀ in fp32 or wider, whatever the dtype of x."""

    def __init__(self, dim: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, dim))

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if isinstance(weight, DTensor):
            # Tensor ranks hold parts of each expert: the gradient that their outputs return is a part of the whole.
            weight = weight.to_local(grad_placements=[Partial()])
        wide = torch.promote_types(x.dtype, torch.float32)
        return F.linear(x.to(wide), weight.to(wide))


class Mixture(nn.Module):
    """Σ over a token's chosen and kept experts of weight · expert(x), and its shared experts' results, whose weight is 1.

    Hidden [batch, seq, dim] → hidden [batch, seq, dim].

    Its auxiliary losses are added to the gradients at its output, so that they need not be passed to the loss through a pipeline.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        assert arch.experts is not None
        self.router = Router(arch.dim, arch.experts)
        self.experts = Experts(arch.experts, arch.dim, arch.hidden)
        together = arch.shared_experts * arch.hidden
        self.shared_experts = SwiGLU(arch.dim, together) if together else None
        self.arch = arch
        #: Attributes that `strategies.expert_parallel` sets: `exchange` passes rows to their experts; `share()` is the factor of a
        #: token's loss;
        #: `over_sequence` adds counts of a sequence's tokens up over the `sequence_ranks` that share it; `on_whole` decides on the whole
        #: sequence; `positions` are those of its tokens;
        #: `tally` receives the sums of a validation: over tokens of the balance loss, the z-loss, the dropped choices ÷ top_k, and 1.
        self.exchange: Exchange = here
        self.share: Callable[[], float] = unweighted
        self.over_sequence: Callable[[Tensor], Tensor] = alone
        self.sequence_ranks = 1
        self.on_whole: OnWhole = here_whole
        self.positions: Positions = first_positions
        self.tally: Callable[[Tensor], None] = discard_stats
        #: Attributes that `strategies.expert_balance` sets: `expert_bias` [experts], for the choice alone, and where `loads` are counted.
        self.bias_update_speed = arch.bias_update_speed if arch.balance == "bias" else None
        self.expert_bias = None if self.bias_update_speed is None else torch.zeros(arch.experts, device="cpu")
        self.loads = torch.zeros(arch.experts, dtype=torch.int64, device="cpu")

    def forward(self, x: Tensor, starts: Tensor | None = None) -> Tensor:
        """`starts` [batch, whole sequence + 1] as in `strategies.documents.Packed`, if documents are packed."""
        logits = self.router(x)
        scores, softmax = self._scores(logits)
        documents, routing = self._routed(scores, softmax, starts)
        most_rows = self._most_rows(*x.shape[:2]) if documents is None else None
        out = self._mix(x.flatten(0, 1), routing, most_rows).view_as(x)
        if self.shared_experts is not None:
            out = out + self.shared_experts(x)
        # Biases are in no loss: its counts are those of the highest affinities (2412.19437, equation 18).
        best = routing.chosen if self.expert_bias is None else scores.topk(self.arch.top_k, dim=-1).indices
        if documents is None:
            balance = balance_loss(scores, best, self.over_sequence, self.sequence_ranks)
            z = z_loss(logits)
            tokens = z.new_full((), logits.shape[:2].numel())
        else:
            balance = balance_loss_within(scores, best, documents, self.over_sequence)
            z = z_loss_within(logits, documents)
            tokens = documents.counting.sum()
        if not torch.is_grad_enabled():
            dropped = tokens - routing.kept.sum() / self.arch.top_k
            self.tally(torch.stack([balance, z, dropped, tokens]).double())
            return out
        losses = self.arch.balance_loss * balance + self.arch.z_loss * z
        attached: Tensor = AttachLoss.apply(out, losses, self.share())  # type: ignore[no-untyped-call]
        if self.expert_bias is None:
            return attached
        counting = None if documents is None else documents.counting
        same: Tensor = counted(attached, routing.chosen, self.loads, counting)
        return same

    def _routed(self, scores: Tensor, softmax: str, starts: Tensor | None) -> tuple[Documents | None, Routing]:
        """The routing, and the documents of the tokens if they are packed."""
        arch = self.arch
        if starts is None:
            return None, route(scores, arch.top_k, softmax, arch.capacity_factor, self.on_whole, self.expert_bias)
        routing = route(scores, arch.top_k, softmax, None, bias=self.expert_bias)
        documents = documents_of(starts, self.positions(scores.shape[1], scores.device))
        kept = documents.counting.unsqueeze(-1).expand_as(routing.chosen)
        if arch.capacity_factor is not None:
            decide = functools.partial(
                kept_within, starts=starts, experts=scores.shape[-1], factor=arch.capacity_factor
            )
            kept = self.on_whole(routing.chosen, decide)
        return documents, Routing(routing.chosen, routing.weights, kept)

    def _scores(self, logits: Tensor) -> tuple[Tensor, str]:
        """What experts are chosen and weighted by, and the softmax over them that gives weights.

        With biases, affinities are sigmoids, and weights are affinities over the sum of the chosen ones (2412.19437, equations 12 to
        16). The softmax of their logarithms is the same, and divides by no sum that is rounded to zero.
        """
        return (logits, self.arch.router_softmax) if self.expert_bias is None else (F.logsigmoid(logits), "chosen")

    def _most_rows(self, batch: int, seq: int) -> int | None:
        """The most rows that an expert can get of this rank's tokens [batch, seq]; None without a capacity."""
        arch = self.arch
        if arch.capacity_factor is None or arch.experts is None:
            return None
        capacity = capacity_of(seq * self.sequence_ranks, arch.top_k, arch.experts, arch.capacity_factor)
        return batch * min(capacity, seq)

    def _mix(self, x: Tensor, routing: Routing, most_rows: int | None) -> Tensor:
        """Pass `x` [tokens, dim] to its experts and combine their results."""
        tokens, dim = x.shape
        top_k, experts = self.arch.top_k, self.router.weight.shape[0]
        # A dropped choice is sorted behind the last expert.
        place = torch.where(routing.kept, routing.chosen, experts).flatten()
        counts = rows_each(place, experts)
        order = place.argsort(stable=True)
        # Every row of the expanded x is read at most once, and results are stored, not added: no order of sums varies.
        rows = x.unsqueeze(1).expand(tokens, top_k, dim).reshape(-1, dim).index_select(0, order)
        done = self.exchange(rows, counts, most_rows, self.experts)
        back = done.new_zeros(tokens * top_k, dim).index_copy(0, order, done).view(tokens, top_k, dim)
        weights = routing.weights.view(tokens, top_k, 1).to(back.dtype)
        return (back * weights).sum(1)


def rows_each(place: Tensor, experts: int) -> Tensor:
    """How many rows each expert has [experts] int64, for the experts `place` [n] int64 of rows; `experts` stands for none.

    Not by `bincount`, whose host reads the least and the largest value from a GPU.
    """
    return place.new_zeros(experts + 1).scatter_add_(0, place, place.new_ones(1).expand_as(place))[:experts]


def balance_loss(
    logits: Tensor, chosen: Tensor, over_sequence: Callable[[Tensor], Tensor], sequence_ranks: int = 1
) -> Tensor:
    """Switch's load-balancing loss (2101.03961, equations 4 to 6) of each sequence, summed over tokens: Σ_b seq · N · Σ_i f_i · P_i.

    f_i is the share of the sequence's choices of expert i (before any is dropped; no gradient), P_i the mean over its tokens of the
    softmax over all experts; 1 per token if both are even. With `sequence_ranks` the sum over them is the loss.
    """
    batch, seq, experts = logits.shape
    counts = logits.new_zeros(batch, experts).scatter_add_(
        1, chosen.flatten(1), logits.new_ones(1).expand(batch, seq * chosen.shape[-1])
    )
    frequency = over_sequence(counts) / (seq * sequence_ranks * chosen.shape[-1])
    # The mean's 1/seq and the sum over tokens' seq cancel.
    return experts * (frequency * logits.softmax(-1).sum(1)).sum()


def z_loss(logits: Tensor) -> Tensor:
    """ST-MoE's router z-loss (2202.08906, equation 5) summed over tokens: Σ (log Σ_i exp logit_i)²."""
    return logits.logsumexp(-1).square().sum()


# The compiler refuses a backward pass that changes a tensor which is not its own.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def counted(out: Tensor, chosen: Tensor, loads: Tensor, counting: Tensor | None = None) -> Tensor:
    """`out`. The backward pass adds the choices of each expert to `loads` [experts], those that a capacity drops too.

    `counting` [batch, seq]: whether a token counts; None: all do.
    """
    every = chosen.flatten()
    each = torch.ones_like(chosen) if counting is None else counting.to(chosen.dtype).unsqueeze(-1).expand_as(chosen)
    counts = torch.zeros_like(loads).scatter_add_(0, every, each.reshape(-1))
    same: Tensor = CountOnce.apply(out, counts, loads)  # type: ignore[no-untyped-call]
    return same


class CountOnce(torch.autograd.Function):
    """Its first argument. The first backward pass adds the second to the third.

    So a micro-batch counts once: a recomputed block runs forward twice, a schedule may run its backward pass twice, and a validation
    runs none.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, out: Tensor, counts: Tensor, loads: Tensor) -> Tensor:
        ctx.counts, ctx.loads = counts, loads  # type: ignore[attr-defined]
        return out.view_as(out)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        if ctx.counts is not None:  # type: ignore[attr-defined]
            ctx.loads.add_(ctx.counts)  # type: ignore[attr-defined]
            ctx.counts = None  # type: ignore[attr-defined]
        return grad, None, None


class AttachLoss(torch.autograd.Function):
    """Its first argument. The backward pass adds `share ×` the second argument's gradient, wherever that pass starts."""

    @staticmethod
    def forward(ctx: FunctionCtx, out: Tensor, loss: Tensor, share: float) -> Tensor:
        ctx.one = loss.new_full((), share)  # type: ignore[attr-defined]
        return out.view_as(out)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        return grad, ctx.one, None  # type: ignore[attr-defined]


def here(rows: Tensor, counts: Tensor, most_rows: int | None, experts: Compute) -> Tensor:  # noqa: ARG001  (an exchange's)
    """Apply `experts`, which are all on this rank."""
    return experts(rows, counts)


def alone(counts: Tensor) -> Tensor:
    """The counts of sequences that are whole on this rank."""
    return counts


def unweighted() -> float:
    """The factor of a loss that is summed over tokens."""
    return 1.0


def discard_stats(sums: Tensor) -> None:
    """No sink for statistics."""


class MixtureOfExperts(Llama):
    """A Llama whose feed-forwards are mixtures of experts; see `Decoder` for shapes."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch, Mixture)

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        """Module pattern → style, for every parameter; `sequence` shards the hidden state between blocks on dim 1."""
        plan = super().tensor_plan(sequence)
        for name in ("gate", "up", "down"):
            del plan[f"blocks.*.mlp.{name}"]
        shared = shared_plan() if self.arch.shared_experts else {}
        return {**plan, "blocks.*.mlp": MixtureParallel(sequence), **shared}
