"""The passes of ZB-H1 and ZB-H2, the zero bubble schedules with one stage per rank. Imports no torch.

Qi et al. (2401.10241, section 2, figures 2 and 3) split a backward pass into I, the gradient of the input, and W, that of the weights. No
other rank needs W, so it fills what would be a bubble. Rank i (0-based, of p) begins with `ahead` forward passes, as in 1F1B. Its W of a
micro-batch runs `behind` micro-batches after its I.

| | ahead | behind | micro-batches that each rank holds | bubble of a step |
|---|---|---|---|---|
| ZB-H1 | p − i | i | p | (p − 1)(F + I − W) |
| ZB-H2 | 2(p − i) − 1 | 2i | 2p − 1 | (p − 1) · max(F, F + I − 2W) |

F, I and W are the times of a stage's passes, where W is not longer than F or I. 1F1B's bubble is (p − 1)(F + I + W), and its rank i holds
p − i micro-batches.

The paper's ZB-H2 has no bubble with equal times, because its optimizer does not wait for all ranks: the first rank begins the next step
while the last one ends this one, and the norm of all gradients is checked afterwards (section 4). Here all ranks end a step together, so
the last rank's start, (p − 1)F after the first one's, remains. So ZB-H2 is faster than ZB-H1 only if I takes longer than W.

The first rank has no neighbour that needs its I, so its backward passes are whole.
"""

from collections.abc import Iterator
from typing import Final

from .schedule_order import Action, Order

#: The schedules of this file, by their names in layouts.
HANDCRAFTED: Final = ("zb-h1", "zb-h2")


def passes(schedule: str, ranks: int, microbatches: int) -> Order:
    """The passes of every rank in a step of `schedule`, without messages."""
    return tuple(tuple(_passes(rank, *shift(schedule, ranks, rank), microbatches)) for rank in range(ranks))


def shift(schedule: str, ranks: int, rank: int) -> tuple[int, int]:
    """(ahead, behind) of a rank, in micro-batches."""
    if schedule == "zb-h1":
        return ranks - rank, rank
    return 2 * (ranks - rank) - 1, 2 * rank


def _passes(rank: int, ahead: int, behind: int, microbatches: int) -> Iterator[Action]:
    for microbatch in range(min(ahead, microbatches)):
        yield Action("F", rank, microbatch)
    for microbatch in range(microbatches):
        yield Action("I" if rank else "B", rank, microbatch)
        if rank and microbatch >= behind:
            yield Action("W", rank, microbatch - behind)
        if microbatch + ahead < microbatches:
            yield Action("F", rank, microbatch + ahead)
    if rank:
        for microbatch in range(max(0, microbatches - behind), microbatches):
            yield Action("W", rank, microbatch)
