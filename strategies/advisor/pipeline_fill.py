"""How long the busiest rank of a pipeline computes nothing in a step, by schedule, if messages take no time. Imports no torch.

For p ranks of v stages each, m micro-batches, and F, I and W seconds of a rank's forward pass, gradient of the input and gradient of the
weights of one micro-batch, over all of its stages:

| schedule | seconds |
|---|---|
| GPipe, 1F1B (1811.06965, 2006.09503) | (p−1)(F + I + W) |
| interleaved (2104.04473, section 2.2) | (p−1)(F + I + W)/v |
| ZB-H1 (2401.10241, section 2) | (p−1)(F + I − W) |
| ZB-H2 where all ranks end a step together | (p−1) · max(F, F + I − 2W) |
| interleaved zero-bubble | (p−1)(F + I − W)/v |
| ZBV (2401.10241, section 6) | (p−1) · max(F, I, I + max(F, I) − 2W(m−p)/(p−1))/v |
| DualPipeV, whose pairs run one after the other | (p−1)(2F + I − W)/v |
| 2BW (2006.09503), which is not flushed, of 2(p−1) micro-batches or more | 0 |
| 2BW of fewer, where all ranks end a step together | (p−1)(I + W) |
| 2BW whose ranks end a step apart, but for the first and the last, which share a weight | (p−1)(I + W) |
| PipeDream (1806.03377) where all ranks, or the first and the last, end a step together | (p−1)(I + W) |

Those of torch's schedules are what simulations of their orders give where W is not longer than F and I. If I is longer than F + W, as with
full recompute, ZBV leaves about (p−1)(F + I)/v empty and DualPipeV (p−1)(3F + I − F/(p−1))/v. A step ends on all ranks together, so no
flushed schedule has less than the time between the first rank's start and the last one's. PipeDream's ranks run their forward passes at a
time, and the backward passes of its one micro-batch one after the other. The tests compare all of them with simulations.
"""

from ..delayed_rules import alternates
from ..layout import Layout


def fill_s(
    layout: Layout,
    microbatches: int,
    forward: float,
    backward_input: float,
    backward_weight: float,
    ends_apart: bool = False,
) -> float:
    """Those seconds, for the times of one micro-batch on a rank.

    `ends_apart`: of a schedule with delayed gradients in the order whose ranks end a step at different times; but the first and the last
    wait for each other.
    """
    ranks, each = layout.pipeline, layout.stages_per_rank
    if ranks == 1 or (layout.schedule == "2bw" and not alternates(layout, microbatches, ends_apart)):
        return 0.0
    long = backward_input > forward + backward_weight
    match layout.schedule:
        case "zb-h1" | "interleaved-zb":
            gap = forward + backward_input - backward_weight
        case "pipedream" | "2bw":
            gap = backward_input + backward_weight
        case "zb-h2":
            gap = max(forward, forward + backward_input - 2 * backward_weight)
        case "zbv":
            few = 2 * backward_weight * (microbatches - ranks) / (ranks - 1)
            least = forward + backward_input if long else max(forward, backward_input)
            gap = max(least, backward_input + max(forward, backward_input) - few)
        case "dualpipev":
            pairs = forward * (1 - 1 / (ranks - 1)) if long else -backward_weight
            gap = 2 * forward + backward_input + pairs
        case _:
            gap = forward + backward_input + backward_weight
    return (ranks - 1) * gap / each
