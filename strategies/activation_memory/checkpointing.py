"""Activation recompute: a block drops some of its activations and computes them again in its backward pass.

Elements that a block keeps, per token (llama: width d, feed-forward h, key/value width k; fused attention):

- `none` keeps everything: 8d + 4h.
- `full` (Chen et al., 1604.06174) keeps the block's input, d, and costs one more forward pass.
- `selective` (per operator, after Korthikanti et al., 2205.05198, section 5) keeps the input and the results of linear layers,
  fused attention and collectives: 4d + 2k + 2h. It computes norms, rotations, activations, products and unfused attention scores
  again, which costs bytes moved, almost no FLOPs, and no traffic but that of Ulysses and Ring Self-Attention. Of a ring or an
  all-gather it keeps the output, and not the parts that are merged into it (`as_one`).

`selective.py` lists which of these results need not be kept. `split_checkpoint.py` is for backward passes in halves, each of which
computes a block again. Tensor plus sequence parallelism divides all of it by t. `cost/activations.py` derives the formulas,
tests/parity/test_activations.py counts the elements. Recomputing every n-th block is a compromise between two modes.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

from ..dispatch_mode import operator_name
from ..memory_options import Recompute
from ..torch_version import tried
from .selective import COLLECTIVES, contexts
from .split_checkpoint import SplitCheckpoint

#: Matrix products with weights and fused attention, by operator name. Products of activations alone (`bmm`) are recomputed.
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


def apply_recompute(blocks: Sequence[nn.Module], recompute: Recompute, halves: bool = False) -> None:
    """Recompute every `recompute.every`-th block. Wraps the instance's `forward`; parameter names and hooks do not change.

    `halves`: a schedule runs the backward passes of these blocks, all of one model part, in two halves.
    """
    if recompute.mode == "none":
        return
    chosen = _selective if recompute.mode == "selective" else noop_context_fn
    if halves:  # torch's own policy keeps results for one use
        run: Any = SplitCheckpoint(chosen if tried() else noop_context_fn).run
    else:
        # The compiler takes no context function of torch's own, not even the default one.
        given: dict[str, Any] = {"context_fn": chosen} if chosen is _selective else {}
        run = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=True, **given)
    for block in blocks[:: recompute.every]:
        block.forward = functools.partial(run, block.forward)


def _selective() -> tuple[Any, Any]:
    """The context function for selective recompute. The compiler needs torch's own policy, and finds unneeded results by itself.

    A version of torch that was not tried gets it, too: it keeps a little more than `contexts` does.
    """
    public = torch.compiler.is_compiling() or not tried()
    return create_selective_checkpoint_contexts(_policy) if public else contexts(kept)


def _policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:  # noqa: ARG001
    return CheckpointPolicy.MUST_SAVE if kept(operator_name(op)) else CheckpointPolicy.PREFER_RECOMPUTE


def kept(name: str) -> bool:
    """Whether the results of the operator `name` are kept. Those of collectives are, because recomputing them would be traffic.
    Collectives that write into buffers (`c10d`: ring, experts) must run again: if a result is kept, the buffer is not written.
    """
    return name in KEPT or (name.startswith(COLLECTIVES) and not name.endswith("wait_tensor"))
