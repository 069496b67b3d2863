"""Ranks agree which steps are measured, without a message of its own, and events cost little."""

import random

import pytest

from shardyard.strategies.telemetry.step_sampling import COST, FIRST, LONGEST, StepSampling


def agreed(costs: list[float], step_s: float = 1.0) -> list[StepSampling]:
    """The ranks after each has measured its own cost."""
    ranks = [StepSampling(sampled=True, first=1) for _ in costs]
    for rank, cost_s in zip(ranks, costs, strict=True):
        rank.measured(cost_s, step_s)
    sums = [sum(numbers) for numbers in zip(*(rank.votes() for rank in ranks), strict=True)]
    for rank in ranks:
        rank.decide(sums, len(ranks))
    return ranks


def test_on_a_cpu_every_step_is_measured_and_nothing_is_sent() -> None:
    always = StepSampling(sampled=False)
    always.measured(1.0, 1.0)
    always.decide([], 4)
    assert always.votes() == () and all(always.due(step) for step in range(1, 100))


def test_until_something_was_measured_every_step_is() -> None:
    first = StepSampling(sampled=True)
    first.decide(first.votes(), 1)
    assert first.votes() == (1.0,) and all(first.due(step) for step in range(1, 100))


def test_the_first_steps_are_all_measured() -> None:
    rank = StepSampling(sampled=True)
    rank.measured(1.0, 1.0)
    measured = []
    for step in range(1, 3 * FIRST):
        measured += [step] * rank.due(step)
        rank.decide(rank.votes(), 1)
    assert measured == list(range(1, FIRST + 1)), "the next one is step 50"


@pytest.mark.parametrize("seed", range(20))
def test_all_ranks_measure_the_same_steps_for_at_most_the_cost(seed: int) -> None:
    """Also where one rank's cost is twice another's."""
    dice = random.Random(seed)
    least = dice.uniform(0.0, 0.05)
    costs = [least * dice.uniform(1.0, 2.0) for _ in range(dice.choice([1, 2, 8]))]
    ranks = agreed(costs)
    assert len({rank.every for rank in ranks}) == 1
    assert all(cost_s / rank.every <= COST for cost_s, rank in zip(costs, ranks, strict=True))
    assert ranks[0].every <= 1 + 2 * max(costs) / COST, "no fewer than needed"
    assert [step for step in range(1, 200) if ranks[0].due(step)] == list(range(ranks[0].every, 200, ranks[0].every))


def test_slow_ranks_are_still_found_where_events_are_dear() -> None:
    assert agreed([10.0, 10.0])[0].every == LONGEST
    assert agreed([1e-9])[0].every == 1
    assert agreed([0.0], step_s=0.0)[0].every == 1


def test_votes_are_whole_numbers_whose_sum_is_exact() -> None:
    rank = StepSampling(sampled=True)
    rank.measured(0.0123, 1.0)
    assert rank.votes()[0].is_integer() and rank.votes()[0] <= LONGEST
