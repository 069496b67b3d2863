"""How long the busiest rank of a pipeline computes nothing in a step, by schedule, if messages take no time. Imports no torch.

For p ranks of v stages each, and F, I and W seconds of a rank's forward pass, gradient of the input and gradient of the weights of one
micro-batch, over all of its stages:

| schedule | seconds |
|---|---|
| GPipe, 1F1B (1811.06965, 2006.09503) | (p−1)(F + I + W) |
| interleaved (2104.04473, section 2.2) | (p−1)(F + I + W)/v |
| ZB-H1 (2401.10241, section 2) | (p−1)(F + I − W) |
| ZB-H2 where all ranks end a step together | (p−1) · max(F, F + I − 2W) |
| interleaved zero-bubble, ZBV, DualPipeV | (p−1)F/v |
| 2BW, PipeDream | 0: they are not flushed |

The last but one is what remains if gradients of weights fill every other gap: the last rank begins (p−1) forward passes of a stage after
the first one. The tests compare all of them with simulations of the orders that run.
"""

from ..layout import DELAYED, Layout


def fill_s(layout: Layout, forward: float, backward_input: float, backward_weight: float) -> float:
    """Those seconds, for the times of one micro-batch on a rank."""
    ranks, each = layout.pipeline, layout.stages_per_rank
    if layout.schedule in DELAYED:
        return 0.0
    match layout.schedule:
        case "zb-h1":
            gap = forward + backward_input - backward_weight
        case "zb-h2":
            gap = max(forward, forward + backward_input - 2 * backward_weight)
        case "interleaved-zb" | "zbv" | "dualpipev":
            gap = forward / each
        case _:
            gap = (forward + backward_input + backward_weight) / each
    return (ranks - 1) * gap
