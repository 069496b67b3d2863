"""Activation recompute: what a block does not keep for its backward pass, it computes again there.

Per block, token and unit of width, in elements (llama: width d, feed-forward h, key/value width k; fused attention):
`none` keeps everything; `full` (Chen et al., 1604.06174) keeps the block's input, 1·d, for one more forward pass; `selective` (by op, after
Korthikanti et al., 2205.05198, section 5) keeps the input and the results of linear layers, fused attention and collectives, and computes
norms, rotations, activations, products and unfused attention scores again, which costs bytes moved and next to no FLOPs, and no traffic.
tests/parity/test_activations.py derives the formulas and counts. Recomputing every n-th block weighs one against the other.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from .savings import Recompute

#: Matrix products with weights and fused attention, by operator name. Products of activations alone (`bmm`) are computed again.
KEPT = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::linear",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
    }
)
#: Results of collectives, whose recompute would be traffic. Those that write into buffers (`c10d`: ring, experts) must run again: a result
#: that is kept is not written.
KEPT_NAMESPACE = "_c10d_functional"


def apply_recompute(
    blocks: Sequence[nn.Module], recompute: Recompute, seen: Callable[[Any], object] | None = None
) -> None:
    """Recompute every `recompute.every`-th block. The instance's `forward` is wrapped: parameter names and hooks stay as they are.

    `seen` is called with each result that `selective` keeps, which autograd's saved-tensor hooks do not see.
    """
    if recompute.mode == "none":
        return
    more: dict[str, Any] = {}
    if recompute.mode == "selective":
        more["context_fn"] = functools.partial(create_selective_checkpoint_contexts, functools.partial(_kept, seen))
    for block in blocks[:: recompute.every]:
        block.forward = functools.partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=True, **more
        )


def _kept(seen: Callable[[Any], object] | None, context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:  # noqa: ARG001
    policy = keep(op)
    if seen is not None and policy == CheckpointPolicy.MUST_SAVE:
        seen(context.op_output)
    return policy


def keep(op: Any) -> CheckpointPolicy:
    """Whether `op`'s result is kept."""
    name = op.name().split(".")[0] if isinstance(op, torch._ops.OpOverload) else ""
    if name in KEPT or name.split("::")[0] == KEPT_NAMESPACE:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
