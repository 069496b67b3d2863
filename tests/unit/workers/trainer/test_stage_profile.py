"""The profile of a pipeline in a snapshot and in words, with what PipeDream's programme finds for it."""

import json

from shardyard.strategies.cost.stage_balance import ModuleCosts
from shardyard.strategies.layout import Layout
from shardyard.workers.trainer import stage_profile

MS = 10**6


def test_a_snapshot_gives_back_the_profile() -> None:
    costs = ModuleCosts(1, (2, 3), 4, (5, 6, 7), (8, 9, 10, 11))
    assert stage_profile.from_facts(json.loads(json.dumps(stage_profile.facts(costs)))) == costs


def test_the_plan_says_what_other_numbers_of_replicas_would_gain() -> None:
    costs = ModuleCosts(0, (9 * MS, MS), 0, (0, 0, 0), (0, 0, 100 * MS, 0))
    layout = Layout(pipeline=2, data=2)
    assert stage_profile.format_replicas(costs, layout, 1) == (
        "Stages of blocks × replicas: 1 × 2, 1 × 2 take 50 ms per micro-batch, 1 × 3, 1 × 1 would take 3 ms.",
    )
    even = ModuleCosts(0, (MS, MS), 0)
    assert stage_profile.format_replicas(even, layout, 1) == (
        "Stages of blocks × replicas: 1 × 2, 1 × 2 take 0.5 ms per micro-batch, no others are faster.",
    )


def test_the_plan_does_not_compare_where_it_cannot() -> None:
    costs = ModuleCosts(0, (1,) * 100, 0)
    assert stage_profile.format_replicas(None, Layout(pipeline=2), 1) == ()
    assert stage_profile.format_replicas(costs, Layout(pipeline=2, schedule="zbv"), 1) == ()
    assert stage_profile.format_replicas(costs, Layout(pipeline=4, data=64), 1) == ()


def test_the_plan_has_the_times_as_text() -> None:
    costs = ModuleCosts(10**6, (2 * 10**6, 2 * 10**6, 5 * 10**5), 10**5, (0, 10**4, 0, 0))
    assert stage_profile.format_costs(costs) == (
        "layout.pipeline is split by a micro-batch's times in ms: blocks 2 of 2, 1 of 0.5; "
        "embedding 1, head 0.1, messages at most 0.01.",
    )
    assert stage_profile.format_costs(None) == () and stage_profile.facts(None) == {}
