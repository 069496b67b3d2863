"""Linear layers sharded over the tensor axis, and their communication: Megatron's f, g and, with sequence parallelism, their twins.

A group of column-sharded layers shares its input (q, k and v; gate and up); a row-sharded layer follows. Without sequence
parallelism the input is whole on every rank and its gradient is all-reduced; a row's partial sums are all-reduced (1909.08053,
section 3). With it the input is this rank's part of dim 1 and is gathered, its gradient is reduce-scattered, a row's partial sums
too (2205.05198, section 4.2.2). Then only the part is kept, and gathered once more in the backward pass, for the whole group at
once: that overlaps with computing the gradient of the input, whose reduction overlaps with computing the gradients of the weights.

Kept by a group: n·d/t elements of input (n·d without sequence parallelism). Traffic of n·d elements of hidden state, in n·d(t−1)/t:
a group 1 forward (gather) and 2 backward (gather, reduce-scatter), a row 1 and 1; without sequence parallelism 2 backward for a
group and 2 forward for a row (all-reduces).
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial

from ..activation_memory.selective import only_for_kept
from ..embedding_lookup import lookup
from ..torch_version import tried
from .tensor_axis import Axis

#: (x, layers) → each layer's output for the same x.
Columns = Callable[[Tensor, Sequence[nn.Linear]], Sequence[Tensor]]


def each(x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
    """Apply the layers one after the other, on one rank."""
    return [layer(x) for layer in layers]


class ShardedColumns:
    """The layers' own columns [batch, seq, out/t] of hidden states [batch, seq, dim].

    With `sequence`, the input is this rank's part of seq.
    """

    def __init__(self, mesh: DeviceMesh, sequence: bool, chunks: int = 1) -> None:
        self._axis = Axis(mesh, sequence, chunks)

    def __call__(self, x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
        weights = [local(layer.weight) for layer in layers]
        biases = [None if layer.bias is None else local(layer.bias) for layer in layers]
        outputs: tuple[Tensor, ...] = _Columns.apply(local(x), self._axis, *weights, *biases)  # type: ignore[no-untyped-call]
        return outputs


def shard_row(layer: nn.Linear, axis: Axis) -> None:
    """Let a layer sharded by rows sum over ranks.

    As a method: the compiler takes any other callable in the place of `forward` for one of this layer alone, and would compile each block.
    """
    layer.axis = axis  # type: ignore[assignment]
    layer.forward = MethodType(_summed_rows, layer)  # type: ignore[method-assign]


def _summed_rows(layer: nn.Linear, x: Tensor) -> Tensor:
    """The sum over ranks of x [batch, seq, in/t] through each rank's rows of the weight; the bias is added once."""
    axis = cast(Axis, layer.axis)
    whole: Tensor
    if axis.chunks > 1:
        weight = local(layer.weight)
        promised = _Promised.apply(x, weight, axis)  # type: ignore[no-untyped-call]
        whole = _Summed.apply(promised, x.detach(), weight.detach(), axis)  # type: ignore[no-untyped-call]
    else:
        with only_for_kept():  # a partial sum is only needed for its reduction
            part = F.linear(x, local(layer.weight))
        whole = _Sum.apply(part, axis)  # type: ignore[no-untyped-call]
    if layer.bias is None:
        return whole
    # With sequence parallelism each rank adds the bias to its own tokens: its gradient on a rank is then a part of the whole.
    return whole + local(layer.bias, partial=axis.sequence)


def own_part(layer: nn.Linear, x: Tensor) -> Tensor:
    """x through this rank's columns or rows of the weight: own columns of a whole x, or a part of the sum over ranks."""
    return F.linear(x, local(layer.weight))


def sharded_lookup(layer: nn.Embedding, mesh: DeviceMesh, sequence: bool, tokens: Tensor) -> Tensor:
    """Look up tokens [batch, seq] (int64), each on the one rank that has its row: rows (vocabulary) are split as by `torch.chunk`."""
    table = local(layer.weight)
    rows = tokens - -(-layer.num_embeddings // mesh.size()) * mesh.get_local_rank()
    elsewhere = (rows < 0) | (rows >= len(table))
    if not len(table):
        table = F.pad(table, (0, 0, 0, 1))  # a row for masked tokens to look up
    part = lookup(rows.masked_fill(elsewhere, 0), table).masked_fill(elsewhere.unsqueeze(-1), 0)
    whole: Tensor = _Sum.apply(part, Axis(mesh, sequence))  # type: ignore[no-untyped-call]
    return whole


def local(value: Tensor, *, partial: bool = False) -> Tensor:
    """The plain tensor in a DTensor. The gradient is placed like it, or is a part of a sum."""
    if not isinstance(value, DTensor):
        return value
    plain: Tensor = value.to_local(grad_placements=[Partial()] if partial else None)
    return plain


class _Columns(torch.autograd.Function):
    """The group's columns; its naive twin is gather, then `each`, for which autograd would keep the gathered input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, *values: Tensor | None) -> tuple[Tensor, ...]:
        count = len(values) // 2
        weights, biases = values[:count], values[count:]
        ctx.save_for_backward(x, *weights)
        ctx.axis, ctx.biased = axis, [bias is not None for bias in biases]
        layers = list(zip(weights, biases, strict=True))
        return tuple(axis.gathered(x, lambda whole: [F.linear(whole, w, b) for w, b in layers]))  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        axis: Axis = ctx.axis
        nothing: list[Tensor | None] = [None] * len(weights)
        for_x, for_weights = needed_grads(ctx)
        coming = axis.gather(x) if for_weights and axis.sequence else lambda: x
        of_input = _of_input(grads, weights) if for_x else None
        # The sum starts when the gather has arrived: beside each other they may corrupt memory on gloo, and NCCL runs them in turn anyway.
        rows = coming().flatten(0, 1)
        leaving = axis.sum(of_input) if of_input is not None else lambda: None
        del of_input  # its memory is free once it is sent
        if not for_weights:
            return leaving(), None, *nothing, *nothing
        of_weights = [grad.flatten(0, 1).t().mm(rows) for grad in grads]
        of_biases = [grad.sum((0, 1)) if biased else None for grad, biased in zip(grads, ctx.biased, strict=True)]
        return leaving(), None, *of_weights, *of_biases


def _of_input(grads: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Σ grad · weight over the group's layers."""
    first, *others = zip(grads, weights, strict=True)
    total = first[0].flatten(0, 1).mm(first[1])
    for grad, weight in others:
        total.addmm_(grad.flatten(0, 1), weight)
    return total.view(*grads[0].shape[:2], -1)


def needed_grads(ctx: Any) -> tuple[bool, bool]:
    """Whether this backward pass needs the gradient of the first input, and of any of the others.

    A schedule that splits backward passes calls twice, and `ctx.needs_input_grad` is true for all inputs each time. Torch's only
    other answer is private; where it was not tried, both calls compute all gradients.
    """
    if torch.compiler.is_compiling() or not tried():
        return ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:])
    first, *others = (node is not None and torch._C._will_engine_execute_node(node) for node, _ in ctx.next_functions)
    return first, any(others)


class _Sum(torch.autograd.Function):
    """Partial sums → their sum. Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return axis.sum(part)()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        axis: Axis = ctx.axis
        return axis.gather(grad)() if axis.sequence else grad, None


class _Promised(torch.autograd.Function):
    """A row-sharded layer in chunks, without its values, which `_Summed` computes; their naive twin is a product, then `_Sum`.

    Apart, because a recomputation ends when all that is kept is there: a block's last layer sends nothing again. Backward, a chunk of
    the gradient arrives while another is multiplied.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, axis: Axis) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.axis, ctx.gathered = axis, []
        return x.new_empty(()).expand(axis.own_shape(x, len(weight)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        axis: Axis = ctx.axis
        for_x, for_weight = needed_grads(ctx)
        of_x, gathered = None, ctx.gathered
        if for_x:
            # A schedule that splits backward passes asks for the weight's gradient later: the gradient is not gathered again.
            keeps = ctx.needs_input_grad[1]
            of_x, *gathered = axis.gathered(grads[0], lambda grad: [_mm(grad, weight)] + [grad] * keeps)
        elif not gathered:
            gathered = axis.gathered(grads[0], lambda grad: [grad])
        ctx.gathered = [] if for_weight else gathered
        of_weight = gathered[0].flatten(0, 1).t().mm(x.flatten(0, 1)) if for_weight else None
        return of_x, of_weight, None


class _Summed(torch.autograd.Function):
    """The values of what was promised. Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, promised: Tensor, x: Tensor, weight: Tensor, axis: Axis) -> Tensor:  # noqa: ARG004
        return axis.summed(x, lambda chunk: F.linear(chunk, weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ARG004
        return grads[0], None, None, None


def _mm(x: Tensor, matrix: Tensor) -> Tensor:
    """x […, in] · matrix [in, out]."""
    product: Tensor = x.flatten(0, -2).mm(matrix).unflatten(0, x.shape[:-1])
    return product
