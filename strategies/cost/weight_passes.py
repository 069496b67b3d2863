"""What a rank holds for gradients of weights that a schedule computes later than those of inputs. Imports no torch.

Between the two halves of a backward pass a micro-batch keeps all its activations. It also keeps the gradient of each result of a layer
with weights. For width d, queries q, keys k and feed-forward h these are, in elements per token and block, q + 2k of q, k and v, d of o,
2h of gate and up (h of GPT-2's up), d of down, 2d of the norms, and q + k of norms of heads. At the end of the last stage it is d of the
norm and the logits'.
"""

from collections.abc import Sequence
from typing import Final

from ..layout import V_SCHEDULES, Layout, divides_hidden
from . import logits
from .estimate import Setting

#: Schedule → the passes by which each rank's second halves come later than those of the rank before, with enough micro-batches.
_BEHIND: Final = {"interleaved-zb": 1, "zb-h1": 1, "zb-h2": 2, "zbv": 2, "dualpipev": 1}


def pending(layout: Layout, microbatches: int, place: int) -> int:
    """The most passes whose first half has run on the rank at `place` (0-based) of its pipeline, and whose second half has not."""
    behind = _BEHIND.get(layout.schedule)
    if layout.pipeline == 1 or behind is None:
        return 0
    if place == 0 and layout.schedule.startswith("zb-h"):  # whose backward passes are whole
        return 0
    if layout.schedule == "zbv":
        # Torch plans 2p − 1 micro-batches and leaves out the passes of those that are not there.
        more = min(microbatches, 2 * layout.pipeline - 1) - layout.pipeline
        return 1 + min(place, more) + max(0, place + 1 + more - layout.pipeline)
    return min(microbatches * layout.stages_per_rank, behind * place + 1)


def blocks_pending(layout: Layout, passes: int, in_stages: Sequence[int]) -> int:
    """The most blocks that `passes` of these passes have, on a rank with `in_stages` blocks in its stages.

    A loop has all passes of one stage at a time. A V has half of them in either stage, and at some moments one more in the larger.
    """
    most = max(in_stages)
    if layout.schedule in V_SCHEDULES:
        larger = min(passes, (passes + 1) // 2 + 1)
        return larger * most + (passes - larger) * min(in_stages)
    return passes * most


def block_bytes(setting: Setting) -> float:
    """Bytes per token of the gradients that one micro-batch keeps for one block."""
    of, layout = setting.decoder, setting.layout
    hidden = of.hidden * (setting.expert_rows + of.shared_experts)
    columns = of.query + 2 * of.key + (2 if of.gated else 1) * hidden + of.head_norms * (of.query + of.key)
    rows = of.dim * (1 + setting.expert_rows + (of.shared_experts > 0))
    # A row-sharded layer's result, a part of a sum, is as large as the whole; on a grid nothing is whole.
    parts = 1 if layout.tensor_shape is None else layout.tensor
    return setting.compute * (columns / layout.tensor + rows / parts + 2 * of.dim / _hidden_parts(layout))


def end_bytes(setting: Setting) -> float:
    """Bytes per token of the gradients that one micro-batch keeps for the last norm and the head. A loss in chunks keeps the weight's."""
    norm = setting.compute * setting.decoder.dim / _hidden_parts(setting.layout)
    return norm + (logits.output(setting) if setting.loss_chunk is None else logits.loss_kept(setting))


def _hidden_parts(layout: Layout) -> int:
    """Ranks that divide the hidden state between layers."""
    return layout.tensor if divides_hidden(layout) else 1
