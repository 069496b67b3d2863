"""What waits for passes for weights: as many passes as in the order that runs. (tests/dry/test_plan.py counts the bytes.)"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.cost.weight_passes import block_bytes, blocks_pending, end_bytes, pending
from shardyard.strategies.layout import Layout, Schedule
from shardyard.strategies.memory_options import SPLIT_BACKWARD
from shardyard.strategies.pipeline_parallel.schedule_order import Action

from .test_estimate import setting
from .test_in_flight import cases, orders


@pytest.mark.parametrize(("schedule", "ranks", "each"), cases(SPLIT_BACKWARD))
def test_as_many_wait_as_in_the_order(schedule: Schedule, ranks: int, each: int) -> None:
    for layout, microbatches, order in orders(schedule, ranks, each):
        found = [pending(layout, microbatches, place) for place in range(ranks)]
        assert found == [_most(actions) for actions in order], microbatches


@pytest.mark.parametrize(("schedule", "ranks", "each"), cases(["interleaved-zb", "zbv", "dualpipev"]))
def test_blocks_of_unequal_stages_wait_as_in_the_order(schedule: Schedule, ranks: int, each: int) -> None:
    """Those before the pass that runs, and its own. Of a V those of four passes may be counted for the larger stage: never too few."""
    for layout, microbatches, order in orders(schedule, ranks, each):
        for place, actions in enumerate(order):
            for sizes in ((4, 1, 1), (1, 4, 2)):
                own = sizes[: layout.stages_per_rank]
                waiting = pending(layout, microbatches, place)
                found = sum(blocks_pending(layout, passes, own) for passes in (waiting - 1, 1))
                counted = _most(actions, dict(zip(layout.stages_of(place), own, strict=True)))
                assert counted <= found <= counted + (0 if schedule == "interleaved-zb" else 4 * (max(own) - min(own)))


def _most(actions: Sequence[Action], sizes: Mapping[int, int] | None = None) -> int:
    """The most passes between their two halves, or blocks, if the stages have these `sizes`."""
    waiting = most = 0
    for action in actions:
        waiting += {"I": 1, "W": -1}.get(action.kind, 0) * (1 if sizes is None else sizes[action.stage])
        most = max(most, waiting)
    return most


@pytest.mark.parametrize("layout", [{"data": 4}, {"pipeline": 2}, {"schedule": "zbv"}], ids=str)
def test_of_other_layouts_none_waits(layout: dict[str, Any]) -> None:
    given = Layout.model_validate(layout)
    assert [pending(given, 8, place) for place in range(given.pipeline)] == [0] * given.pipeline


WIDTHS = {"dim": 64, "heads": 4, "kv_heads": 2, "hidden": 96, "vocab": 256}


def _of(layout: dict[str, Any], **train: Any) -> Setting:
    found = setting({"pipeline": 2, "schedule": "zb-h1", **layout}, model={"preset": "nano", **WIDTHS}, **train)
    assert isinstance(found, Setting)
    return found


def test_a_block_keeps_the_gradients_of_its_layers_results() -> None:
    """In elements: q 64, k and v 32 each, o 64, gate and up 96 each, down 64, two norms of 64."""
    assert block_bytes(_of({})) == 2 * (64 + 2 * 32 + 64 + 2 * 96 + 64 + 2 * 64)
    # Columns are cut, what rows send is whole, and with sequence parallelism norms see a part of the tokens.
    assert block_bytes(_of({"tensor": 2})) == 2 * ((64 + 2 * 32 + 2 * 96) / 2 + 2 * 64 + 2 * 64 / 2)
    assert block_bytes(_of({"tensor": 2, "sequence": False})) == 2 * ((64 + 2 * 32 + 2 * 96) / 2 + 2 * 64 + 2 * 64)


def test_the_end_keeps_the_gradient_of_the_logits() -> None:
    assert end_bytes(_of({})) == 2 * (64 + 256)
    assert end_bytes(_of({"tensor": 2})) == 2 * (64 + 256) / 2
    chunked = _of({}, loss={"chunk_tokens": 64})
    assert end_bytes(chunked) == pytest.approx(2 * 64 + 2 * 256 * 64 / chunked.tokens)  # the head's own gradient


def test_h2_needs_more_than_h1_and_h1_more_than_1f1b() -> None:
    model = {"preset": "nano", "layers": 4}
    peaks = []
    for schedule in ("1f1b", "zb-h1", "zb-h2"):
        found = setting({"pipeline": 2, "schedule": schedule, "micro_batch": 1}, model=model, precision="bf16")
        assert isinstance(found, Setting)
        peaks.append(plan(found).peak)
    assert peaks == sorted(peaks) and len(set(peaks)) == 3
