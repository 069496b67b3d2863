"""How many micro-batches' activations a rank of a pipeline holds at once, counted in passes through one of its stages. Imports no torch.

A pass is one micro-batch through one stage. Most schedules are torch's; `pipeline_parallel/schedule_order.py` counts the same from them.
A schedule that splits backward passes holds a pass until its gradients of weights are computed.
"""

from collections.abc import Sequence

from ..delayed_rules import alternates
from ..layout import V_SCHEDULES, Layout


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
    ahead = ranks if layout.schedule == "interleaved-zb" else 2 * (ranks - 1 - place) + 1
    return min(every, (each - 1) * round_length(layout, microbatches) + ahead)


def round_length(layout: Layout, microbatches: int) -> int:
    """The micro-batches that pass through one stage of a rank before others pass through its next one.

    With p ranks p, and up to 2p − 1 in the interleaved schedules, whose rounds are equal.
    """
    if not layout.schedule.startswith("interleaved"):
        return layout.pipeline
    return microbatches // max(1, microbatches // layout.pipeline)


def heaviest(layout: Layout, microbatches: int, place: int, stages: Sequence[float], ends_apart: bool = False) -> float:
    """The most that the same rank holds at once, if a pass through each of its stages holds `stages`, in any unit.

    Passes are not spread evenly over its stages. Down a V the first stage has up to 2p − i of them on 0-based rank i, the second i + 1.
    """
    passes = in_flight(layout, microbatches, place, ends_apart)
    if len(set(stages)) == 1:
        return stages[0] * passes
    if layout.schedule in V_SCHEDULES:
        first, second = stages
        most = min(microbatches, 2 * layout.pipeline - place) if first > second else passes - place - 1
        return first * most + second * (passes - most)
    return _heaviest_in_turns(stages, passes, microbatches, round_length(layout, microbatches))


def blocks_on_device(layout: Layout) -> int:
    """The most blocks whose activations a rank has on the device if they are offloaded: one's are used, and one's are copied.

    A pipeline fetches them for a backward pass while those of each stage's last forward pass have not left.
    """
    return 2 if layout.pipeline == 1 else 2 + 2 * layout.stages_per_rank


def _heaviest_in_turns(stages: Sequence[float], passes: int, microbatches: int, each: int) -> float:
    """The same of a loop: in a round `each` micro-batches pass forward through one stage after the other, and backward in reverse order.

    A rank that has run n forward passes has run n − `passes` backward passes. What it holds is at its most when either goes on to another
    stage, and is the same in all rounds after the second.
    """
    count = len(stages)
    changes = [each * turn for turn in range(count * min(microbatches // each, 3) + 1)]
    moments = {n for change in changes for n in (change, change + passes) if n <= microbatches * count}

    def held(forward: int) -> float:
        backward = max(0, forward - passes)
        done = (
            (_through(forward, each, count, k), _through(backward, each, count, count - 1 - k)) for k in range(count)
        )
        return sum(size * (ahead - behind) for size, (ahead, behind) in zip(stages, done, strict=True))

    return max(map(held, moments))


def _through(passes: int, each: int, stages: int, turn: int) -> int:
    """How many of the first passes went through the stage that is at `turn`, of `stages` that have `each` in turn."""
    rounds, rest = divmod(passes, each * stages)
    return rounds * each + min(each, max(0, rest - turn * each))
