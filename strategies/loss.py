"""The token loss: summed over tokens, divided once by the step's global token count, with a whole or a sharded vocabulary.

Per token with logits x [V], target y and log Z = log Σ exp x:  (1 − ε)(log Z − x_y) + ε(log Z − mean x) + ζ·log²Z, with label
smoothing ε (1512.00567, section 7) and z-loss ζ (2204.02311, section 5).

If a model's head leaves its output sharded over the tensor axis (a DTensor with Shard(-1)), whole logits never exist: two
all-reduces, of one and of two (with smoothing three) numbers per token, compute max, Σ exp, x_y and Σ x (Megatron-LM, 1909.08053,
section 3). The backward pass sends nothing. Memory: ⌈V/t⌉ instead of V numbers per token, for the logits and for what the backward
pass keeps. The vocabulary is split as by `torch.chunk`, without padding: the last ranks have fewer columns, or none.

A target that is `IGNORED` (`documents.py`) adds nothing, and its logits have a gradient of 0.

For many tokens times classes, `chunked_loss.py` computes the same with the logits of a few tokens at a time.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional

from .documents import IGNORED
from .precision import LossScale
from .telemetry.current import wait_on


class TokenLoss:
    """The loss of a micro-batch as its share of the step's, times the loss scale if there is one.

    Without gradients (validation) it is only the cross-entropy, which compares between runs and with the unigram loss.
    """

    def __init__(
        self, tokens: int, scale: LossScale | None = None, label_smoothing: float = 0.0, z_loss: float = 0.0
    ) -> None:
        self.tokens, self.scale = tokens, scale
        self.label_smoothing, self.z_loss = label_smoothing, z_loss

    @property
    def factor(self) -> float:
        return 1.0 if self.scale is None else self.scale.scale

    @property
    def terms(self) -> tuple[float, float]:
        """Label smoothing and z-loss of the pass that runs: none in validation."""
        return (self.label_smoothing, self.z_loss) if torch.is_grad_enabled() else (0.0, 0.0)

    def share(self) -> float:
        """The factor of one token's loss."""
        return self.factor / self.tokens

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """`logits` [batch, seq, vocab], `targets` [batch, seq] int64 → scalar in fp32 (fp64 for fp64), the same on all tensor ranks."""
        if logits.dim() != 3 or logits.shape[:2] != targets.shape:
            raise ValueError(
                f"the model returned {tuple(logits.shape)}; logits must be [batch, seq, vocab] for targets {tuple(targets.shape)}"
            )
        sum_of = sum_cut if isinstance(logits, DTensor) else sum_whole
        return sum_of(logits, targets, *self.terms) * self.share()


def sum_whole(logits: torch.Tensor, targets: torch.Tensor, smoothing: float, z_loss: float) -> torch.Tensor:
    """The summed loss of whole `logits` [batch, seq, V]: the naive twin of `sum_cut`."""
    wide, targets = _wide(logits).flatten(0, 1), targets.flatten()
    total = functional.cross_entropy(wide, targets, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)
    if not z_loss:
        return total
    return total + z_loss * wide.logsumexp(-1).square().masked_fill(targets == IGNORED, 0.0).sum()


def sum_cut(logits: torch.Tensor, targets: torch.Tensor, smoothing: float, z_loss: float) -> torch.Tensor:
    """The summed loss of `logits` [batch, seq, V], a DTensor on one mesh axis, sharded by vocabulary. Collective over that axis."""
    assert isinstance(logits, DTensor)
    (placement,) = logits.placements
    if placement not in (Shard(logits.dim() - 1), Shard(-1)):
        return sum_whole(wait_on(logits.full_tensor, "all_gather", "tensor"), targets, smoothing, z_loss)
    mesh = logits.device_mesh
    vocab = logits.shape[-1]
    start = -(-vocab // mesh.size()) * mesh.get_local_rank()  # as torch.chunk splits
    own = logits.to_local().flatten(0, 1)
    total: torch.Tensor = _CutCrossEntropy.apply(  # type: ignore[no-untyped-call]
        own, from_column(targets.flatten(), start), vocab, (smoothing, z_loss), mesh.get_group()
    )
    return total


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def from_column(targets: torch.Tensor, start: int) -> torch.Tensor:
    """`targets` counted from the column `start`; `IGNORED` stays."""
    return torch.where(targets == IGNORED, targets, targets - start)


def scores(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The logits [n, own] of hidden states [n, dim] for the rows of a head's weight [own, dim]."""
    return functional.linear(rows, weight)


def loss_and_gradient(
    logits: torch.Tensor,
    targets: torch.Tensor,
    vocab: int,
    terms: tuple[float, float],
    group: dist.ProcessGroup | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed loss of `logits` [n, own] and its gradient [n, own] in fp32 or wider. Collective over `group`, if there is one.

    `targets` [n] are counted from the first own column (outside 0…own−1: on another rank), or `IGNORED`.
    """
    loss, softmax, column, mine, counts, log_z = _forward(logits, targets, vocab, terms, group)
    gradient = softmax.mul_((1 + 2 * terms[1] * log_z).unsqueeze(-1)) if terms[1] else softmax
    return loss, _minus_target(gradient, column, mine, counts, (terms[0], vocab))[:, : logits.shape[-1]]


class _CutCrossEntropy(torch.autograd.Function):
    """Forward keeps the softmax of the own columns. Backward is softmax·(1 + 2ζ·log Z) − (1 − ε)·onehot − ε/V, without communication."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        targets: torch.Tensor,
        vocab: int,
        terms: tuple[float, float],
        group: dist.ProcessGroup,
    ) -> torch.Tensor:
        """`logits` [n, own], `targets` [n] counted from the first own column (outside 0…own−1: on another rank), or `IGNORED`."""
        loss, *kept = _forward(logits, targets, vocab, terms, group)
        ctx.save_for_backward(*kept)
        ctx.terms, ctx.vocab, ctx.own, ctx.dtype = terms, vocab, logits.shape[-1], logits.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        softmax, column, mine, counts, log_z = ctx.saved_tensors
        smoothing, z_loss = ctx.terms
        gradient = softmax * (1 + 2 * z_loss * log_z).unsqueeze(-1)
        _minus_target(gradient, column, mine, counts, (smoothing, ctx.vocab))
        return (gradient * given).to(ctx.dtype)[:, : ctx.own], None, None, None, None


def _forward(
    logits: torch.Tensor,
    targets: torch.Tensor,
    vocab: int,
    terms: tuple[float, float],
    group: dist.ProcessGroup | None,
) -> tuple[torch.Tensor, ...]:
    """The summed loss, and for its gradient: softmax of the own columns, column of the target, whether that is here, whether the token
    counts, and log Z. The softmax of a token that does not count is 0.
    """
    smoothing, z_loss = terms
    own = logits.shape[-1]
    shifted = _wide(logits)
    if not own:  # a column that adds nothing to Σ exp, so that maximum and indices exist
        shifted = functional.pad(shifted, (0, 1), value=-torch.inf)
    highest = shifted.amax(-1)
    if group is not None:
        wait_on(lambda: dist.all_reduce(highest, dist.ReduceOp.MAX, group=group), "all_reduce", group)
    shifted = shifted - highest.unsqueeze(-1)
    counts = targets != IGNORED
    mine = (targets >= 0) & (targets < own)
    column = torch.where(mine, targets, 0)
    at_target = shifted.gather(-1, column.unsqueeze(-1)).squeeze(-1).masked_fill(~mine, 0)
    sums = [at_target, shifted[:, :own].sum(-1)] if smoothing else [at_target]
    softmax = shifted.exp_()
    partial = torch.stack([softmax.sum(-1), *sums])
    if group is not None:
        wait_on(lambda: dist.all_reduce(partial, group=group), "all_reduce", group)
    z, at_target = partial[0], partial[1]
    log_z = z.log()
    loss = log_z - (1 - smoothing) * at_target
    if smoothing:
        loss = loss - smoothing / vocab * partial[2]
    if z_loss:
        loss = loss + z_loss * (log_z + highest).square()
    loss, z = loss.masked_fill(~counts, 0), z.masked_fill(~counts, torch.inf)
    return loss.sum(), softmax.div_(z.unsqueeze(-1)), column, mine, counts, log_z + highest


def _minus_target(
    gradient: torch.Tensor, column: torch.Tensor, mine: torch.Tensor, counts: torch.Tensor, of: tuple[float, int]
) -> torch.Tensor:
    """Subtract (1 − ε) at the target and ε/V everywhere from `gradient`, in place; `of`: ε and V."""
    smoothing, vocab = of
    at_target = (mine.to(gradient.dtype) * (smoothing - 1)).unsqueeze(-1)
    gradient.scatter_add_(-1, column.unsqueeze(-1), at_target)
    if smoothing:
        gradient -= (counts.to(gradient.dtype) * (smoothing / vocab)).unsqueeze(-1)
    return gradient
