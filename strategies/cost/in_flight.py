"""How many micro-batches' activations a rank of a pipeline holds at once, counted in passes through one of its stages. Imports no torch.

A pass is one micro-batch through one stage. Most schedules are torch's; `pipeline_parallel/schedule_order.py` counts the same from them.
A schedule that splits backward passes holds a pass until its gradients of weights are computed.
"""

from ..delayed_rules import alternates
from ..layout import Layout


def in_flight(layout: Layout, microbatches: int, place: int, ends_apart: bool = False) -> int:
    """The most passes that the rank at `place` (0-based) of its pipeline holds activations of.

    `ends_apart`: whether the ranks of a pipeline with delayed gradients end a step at different times.
    """
    ranks, each = layout.pipeline, layout.stages_per_rank
    every = microbatches * each
    if ranks == 1:
        return 1
    match layout.schedule:
        case "gpipe":
            return every
        case "1f1b":
            return min(every, ranks - place)
        case "pipedream":  # of its minibatch, and of those after it
            return ranks - place
        case "zb-h1":
            return min(every, ranks)
        case "zb-h2":
            return min(every, 2 * ranks - 1)
        case "2bw":
            return ranks - place if alternates(layout, microbatches, ends_apart) else 2 * (ranks - 1 - place) + 1
        case "zbv":  # an early rank has all of a few micro-batches in its first stage, before the first of them is back
            return min(microbatches + place + 1, 2 * ranks)
        case "dualpipev":
            return min(every, 2 * ranks + 1)
    rounds = max(1, microbatches // ranks)
    ahead = ranks if layout.schedule == "interleaved-zb" else 2 * (ranks - 1 - place) + 1
    return min(every, (each - 1) * (microbatches // rounds) + ahead)
