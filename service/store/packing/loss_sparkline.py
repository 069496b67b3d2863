"""A job's loss in at most 64 buckets of equal width, updated with every batch of steps.

So a list of jobs shows curves without reading steps. A bucket holds the lowest and the highest loss of its steps: one spike among a
million stays visible. If steps exceed the last bucket, every two buckets become one. Steps that a later attempt trains again
replace those of the attempt before. The bucket in which that attempt begins keeps the extremes of both.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

BUCKETS: Final = 64

Loss = float | None


@dataclass(frozen=True)
class Sparkline:
    """Bucket i holds the steps from i · width + 1 to (i + 1) · width; None if none of them had a finite loss."""

    attempt: int = 0
    width: int = 1
    low: Sequence[Loss] = ()
    high: Sequence[Loss] = ()


def extended(sparkline: Sparkline, attempt: int, reported: Sequence[tuple[int, Loss]]) -> Sparkline:
    """The sparkline with further steps (number, loss), of which there must be at least one."""
    width, low, high = sparkline.width, list(sparkline.low), list(sparkline.high)
    if attempt != sparkline.attempt:
        begun = max(0, -(-(reported[0][0] - 1) // width))
        del low[begun:], high[begun:]
    for step, loss in reported:
        while step > width * BUCKETS:
            width, low, high = 2 * width, _paired(low, min), _paired(high, max)
        at = max(0, (step - 1) // width)
        for bounds, choose in ((low, min), (high, max)):
            bounds.extend([None] * (at + 1 - len(bounds)))
            bounds[at] = _chosen((bounds[at], _short(loss)), choose)
    return Sparkline(attempt, width, low, high)


def _paired(bounds: Sequence[Loss], choose: Callable[[Iterable[float]], float]) -> list[Loss]:
    return [_chosen(bounds[at : at + 2], choose) for at in range(0, len(bounds), 2)]


def _chosen(values: Iterable[Loss], choose: Callable[[Iterable[float]], float]) -> Loss:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _short(loss: Loss) -> Loss:
    """Five digits: more are not visible in 64 columns, and hundreds of sparklines are sent at once."""
    return None if loss is None else float(f"{loss:.5g}")
