"""A loss that leaps is one incident; noise, a falling curve and a new level are not."""

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from shardyard.workers.messages.gang_spec import LossSpikeLimits
from shardyard.workers.supervisor.policies.loss_spike import CALM, ENOUGH, Spikes

BOUNDS = LossSpikeLimits()


def spiked(losses: Iterable[float | None], bounds: LossSpikeLimits | None = BOUNDS, **more: Any) -> list[int]:
    """The steps at which a spike begins."""
    spikes = Spikes(bounds)
    return [
        s for s, loss in enumerate(losses, start=1) if spikes.add({"step": s, "loss": loss, "grad_norm": 1.0, **more})
    ]


def curve(steps: int, *, leap: Callable[[int], float] = lambda _: 0.0, seed: int = 0) -> list[float]:
    """From 5.5 down to 2 with 2% of noise, and `leap(step)` on top."""
    dice = random.Random(seed)
    return [(2 + 3.5 * math.exp(-s / 300)) * dice.gauss(1, 0.02) + leap(s) for s in range(1, steps + 1)]


@pytest.mark.parametrize("seed", range(3))
def test_a_falling_noisy_curve_has_none(seed: int) -> None:
    assert spiked(curve(1500, seed=seed)) == []


def test_a_leap_is_found_once_with_what_was_usual() -> None:
    losses = curve(600, leap=lambda s: 3.0 * (0.8 ** (s - 400)) if s >= 400 else 0.0)
    assert spiked(losses) == [400]
    spikes = Spikes(LossSpikeLimits())
    (found,) = [f for s, loss in enumerate(losses, 1) if (f := spikes.add({"step": s, "loss": loss, "grad_norm": 7.5}))]
    assert found.cause == "loss_spike" and not found.is_repairable and found.rank is None
    assert found.message == (
        f"loss {losses[399]:.4g} in step 400, gradient norm 7.5, where the 100 steps before had 3.082 (median); training continues"
    )


def test_two_leaps_are_two_and_a_relapse_is_none() -> None:
    assert spiked(curve(600, leap=lambda s: 3.0 if s in (300, 300 + CALM // 2, 500) else 0.0)) == [300, 500]


def test_a_new_level_is_found_once_and_then_usual() -> None:
    losses = curve(1000, leap=lambda s: 3.0 if s >= 400 else 0.0)
    assert spiked(losses) == [400]
    assert spiked([*losses, 12.0]) == [400, 1001]


def test_nothing_is_far_above_too_few_losses_or_beyond_a_flat_curve_by_a_trifle() -> None:
    assert spiked([2.0] * (ENOUGH - 1) + [9.0]) == []
    assert spiked([2.0] * ENOUGH + [2.05]) == []
    assert spiked([2.0] * ENOUGH + [2.2]) == [ENOUGH + 1]


def test_switched_off_skipped_or_without_a_loss_it_says_nothing() -> None:
    leap = [2.0] * 100 + [9.0]
    assert spiked(leap, None) == [] and spiked(leap, skipped=True) == [] and spiked([None] * 200) == []


def test_it_outlives_the_supervisor() -> None:
    spikes = Spikes(LossSpikeLimits())
    for step in range(1, 101):
        spikes.add({"step": step, "loss": 2.0})
    heir = Spikes.from_state(LossSpikeLimits(), spikes.to_state())
    assert heir.add({"step": 101, "loss": 9.0}) and not heir.add({"step": 102, "loss": 9.0})
