"""Context parallelism: each rank holds some positions of every sequence; only attention needs the other ranks' positions.

The degree is a product: U ranks exchange heads for positions (Ulysses), and R such groups exchange keys and values: around a ring,
around a ring of rings, or by an all-gather. Ring rank r of R has chunks r and 2R−1−r of 2R (see `ring_attention.py` for the reason); of
these Ulysses rank u of U has the u-th part. Everything else in a model works per token, with the token's position in the whole
sequence. Which of both has neighbouring ranks (`context_inner`) changes only who has which positions (2405.07719, section 4).

Memory: activations ÷ C; parameters, gradients and optimizer state as with data parallelism, whose ZeRO stages shard over data × context.
Traffic per rank, layer and micro-batch: that of `ulysses.py` for sequence · U/C tokens, and that of `ring_attention.py` (also of
`double_ring.py`, `all_gather_attention.py` and `ring_self_attention.py`) with 1/U of the heads. Memory of a layer: in those files.
"""

import functools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ..collectives import exchange_and_sum, reduce_scatter
from ..context_axes import place_on
from ..documents import Packed, starts_of, within
from ..layout import Layout, Refusal
from ..mesh import Mesh
from .all_gather_attention import Gather, all_gather_attention
from .attention_kernels import Kernel
from .double_ring import Rings, double_ring_attention
from .ring_attention import Softmax, ring_attention, zigzag
from .ring_self_attention import ring_self_attention
from .ulysses import Attend, ulysses_attention

#: (number of local tokens, device) → their positions in the whole sequence [local tokens], int64.
Positions = Callable[[int, torch.device], Tensor]


class Spread(Protocol):
    """Distributes attention over the context axis."""

    def __call__(self, attend: Attend, causal: bool = True) -> Attend:
        """The attention that takes the place of `attend`. `causal`: whether `attend` has the causal mask, or none."""


@runtime_checkable
class ContextSpread(Protocol):
    """A model that lets its attention and its tokens' positions be replaced."""

    def spread_context(self, spread: Spread, positions: Positions) -> None:
        """Replace every `attend` with `spread(attend)`, and compute positions with `positions`."""


def apply_context(part: nn.Module, mesh: Mesh) -> None:
    """Distribute `part`'s attention over the context axis. Raises `Refusal` for a model without `spread_context`."""
    if mesh.layout.context == 1:
        return
    if not isinstance(part, ContextSpread):
        raise Refusal(
            "layout.context",
            f"{type(part).__name__} has no spread_context(spread, positions), so its attention cannot be replaced.",
            "Set layout.context to 1, or add that method to the module.",
        )
    part.spread_context(lambda attend, causal=True: spread(attend, mesh, causal=causal), positions_on(mesh))


def positions_on(mesh: Mesh) -> Positions:
    """The positions of this context rank's tokens."""
    layout, index = mesh.layout, mesh.index("context")
    return lambda length, device: positions_of(layout, index, length * layout.context, device)


def spread(attend: Attend, mesh: Mesh, kernel: Kernel | None = None, causal: bool = True) -> Attend:
    """`attend` over the context axis. `kernel` computes the blocks of a ring; the default is the fastest."""
    if mesh.layout.ring > 1:
        attend = _across(mesh, kernel, causal)
    if mesh.layout.ulysses > 1:
        attend = functools.partial(ulysses_attention, group=mesh.group("ulysses"), attend=attend)
    return attend


def _across(mesh: Mesh, kernel: Kernel | None, causal: bool) -> Attend:
    """Attention over the ranks that exchange keys and values."""
    softmax = Softmax(kernel, causal)
    if mesh.layout.ring_window:
        rings = Rings(mesh.group("inner_ring"), mesh.group("outer_ring"))
        return functools.partial(double_ring_attention, rings=rings, softmax=softmax)
    group = mesh.group("ring")
    if mesh.layout.context_method == "all-gather":
        gather = Gather(group, reduce_scatter if mesh.reduces else exchange_and_sum)
        return functools.partial(all_gather_attention, gather=gather, softmax=softmax)
    if mesh.layout.context_method == "ring-self-attention":
        return functools.partial(ring_self_attention, group=group, causal=causal)
    return functools.partial(ring_attention, group=group, softmax=softmax)


def share(tokens: Tensor, mesh: Mesh) -> Tensor:
    """This rank's positions of `tokens` [rows, sequence]: [rows, sequence/C]."""
    if mesh.layout.context == 1:
        return tokens
    return tokens[:, positions_of(mesh.layout, mesh.index("context"), tokens.shape[1])]


def share_batch(inputs: Tensor, targets: Tensor, mesh: Mesh, end: int | None = None) -> tuple[Tensor | Packed, Tensor]:
    """This rank's positions of both [rows, sequence].

    `end`: the token that ends a document, if documents are packed. Whole rows show where they start, and which targets count.
    """
    own = share(inputs, mesh)
    if end is None:
        return own, share(targets, mesh)
    return Packed(own, starts_of(inputs, end)), share(within(inputs, targets, end), mesh)


def positions_of(layout: Layout, index: int, sequence: int, device: torch.device | None = None) -> Tensor:
    """The positions [sequence/C] (int64) of rank `index` of the context axis, in the order in which it holds them.

    They are computed on `device` (default: the CPU), so that no host waits for a copy.
    """
    ring, part = place_on(layout, index)
    held = zigzag(torch.arange(sequence, device=device), ring, layout.ring)
    return held.chunk(layout.ulysses)[part]
