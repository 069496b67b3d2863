"""Bytes per step by formula: an axis without a formula has a reason instead of a number."""

from typing import Any, get_args

import pytest

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.layout import Layout, Schedule
from shardyard.strategies.pipeline_parallel.schedule import planned_order

from .test_estimate import setting


@pytest.mark.parametrize(
    ("layout", "train", "word"),
    [
        ({"tensor": 2}, {"model": {"family": "gpt2", "preset": "nano"}}, "biases"),
        ({"pipeline": 2}, {"model": {"tied": True}}, "tied"),
    ],
    ids=str,
)
def test_what_is_not_known_has_its_reason_instead_of_a_number(
    layout: dict[str, Any], train: dict[str, Any], word: str
) -> None:
    found = setting(layout, **train)
    assert isinstance(found, Setting)
    said = traffic(found)
    (axis,) = layout
    assert word in said.unknown[axis]
    assert not [flow for flow in said.moved if flow[0] == axis]


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        ({"data": 2}, 0),
        ({"data": 4}, 64),
        ({"data": 2, "context": 2, "zero": 1}, 16),
        ({"data": 4, "zero": 3, "shard": 2}, 0),  # two are added up, and then two sums
        ({"data": 8, "zero": 3, "shard": 2}, 32),
        ({"data": 8, "zero": 3, "shard": 4}, 16),
    ],
    ids=str,
)
def test_gradients_of_what_tensor_ranks_hold_whole(layout: dict[str, Any], rows: int) -> None:
    """Of 9 norms of 64 numbers the rows that a rank has, in fp32."""
    model = {"preset": "nano", "layers": 4, "dim": 64, "heads": 4, "kv_heads": 4}
    found = setting({**layout, "tensor": 2}, model=model)
    assert isinstance(found, Setting)
    sent = [(one.elements, one.bytes) for flow, one in traffic(found).moved.items() if flow == ("tensor", "broadcast")]
    assert sent == ([(9 * rows / 2, 4 * 9 * rows / 2)] if rows else [])


def again(layout: dict[str, Any], recompute: Any, layers: int = 4) -> float:
    """The blocks for which rank 0 of two exchanges once more in each micro-batch because of `recompute`.

    With as many heads of keys as of queries a ring and Ulysses send the same: all keys and values, or half of queries, keys, values and
    results.
    """
    model = {"preset": "nano", "layers": layers, "dim": 64, "heads": 4, "kv_heads": 4}
    without, found = (setting(layout, model=model, recompute=given) for given in ("none", recompute))
    assert isinstance(without, Setting) and isinstance(found, Setting)
    sent = [sum(one.elements for one in traffic(given).moved.values()) for given in (without, found)]
    return (sent[1] - sent[0]) / (2 * found.batch.microbatches * found.tokens * found.decoder.key)


SCORES = {"context": 2, "context_method": "ring-self-attention"}
GATHER = {"context": 2, "context_method": "all-gather"}
ULYSSES = {"context": 2, "ulysses": 2}


@pytest.mark.parametrize(
    ("layout", "mode"),
    [
        *((layout, "full") for layout in ({"context": 2}, GATHER, SCORES, ULYSSES)),
        *((layout, "selective") for layout in (SCORES, ULYSSES)),
    ],
    ids=str,
)
def test_only_recomputed_blocks_exchange_keys_and_values_again(layout: dict[str, Any], mode: str) -> None:
    found = {every: again(layout, {"mode": mode, "every": every}) for every in (1, 2, 3, 4)}
    assert found == {1: 4, 2: 2, 3: 2, 4: 1}


@pytest.mark.parametrize("layout", [{"context": 2}, {"context": 4, "ring_window": 2}, GATHER], ids=str)
def test_selective_recompute_keeps_what_a_ring_or_a_gather_made(layout: dict[str, Any]) -> None:
    assert again(layout, "selective") == 0


@pytest.mark.parametrize(("stages", "recomputed"), [([3, 3, 3, 3], 4), ([3, 1, 2, 2], 3), ([1, 3, 1, 3], 2)], ids=str)
def test_blocks_are_counted_stage_by_stage(stages: list[int], recomputed: int) -> None:
    """Rank 0 has stages 0 and 2, and recomputes the first block of each, and the third where there is one."""
    pipeline = {"stages": 2, "blocks": stages}
    layout = {"context": 2, "pipeline": pipeline, "schedule": "interleaved", "micro_batch": 4}
    assert again(layout, "every-2", sum(stages)) == recomputed
    assert again(layout, "full", sum(stages)) == stages[0] + stages[2]


@pytest.mark.parametrize(
    ("context", "mode"), [({"context": 2}, "full"), (ULYSSES, "selective")], ids=["full", "selective"]
)
@pytest.mark.parametrize(("ranks", "size"), [(2, 4), (2, 2), (4, 1)])
@pytest.mark.parametrize("schedule", [name for name in get_args(Schedule) if name not in ("2bw", "pipedream")])
def test_each_half_of_a_backward_pass_exchanges_again(
    schedule: Schedule, ranks: int, size: int, context: dict[str, Any], mode: str
) -> None:
    """In the order that runs, by the rule of `split_checkpoint.py`. (tests/parity/test_cost_inputs.py counts what is sent.)"""
    stages = Layout(pipeline=ranks, schedule=schedule).stages
    blocks = [3, *[2] * (stages - 2), 4]
    pipeline = {"stages": ranks, "blocks": blocks}
    layout = {**context, "pipeline": pipeline, "schedule": schedule, "micro_batch": size}
    for every in (1, 2, 3):
        found = again(layout, {"mode": mode, "every": every}, sum(blocks))
        expected = computed_again(Layout.model_validate(layout), 16 // size, [-(-count // every) for count in blocks])
        assert found * 16 / size == pytest.approx(expected)


def computed_again(layout: Layout, microbatches: int, recomputed: list[int]) -> int:
    """How often rank 0 computes a block again in a step, if a stage keeps what the latest one of them had dropped.

    Gradients of inputs go through the blocks from the last to the first, and those of weights by the order of the parameters. Torch leaves
    the whole backward pass of the first stage to the second half.
    """
    found, latest = 0, dict.fromkeys(layout.stages_of(0), (-1, -1))
    for action in planned_order(layout, microbatches)[0]:
        if action.kind not in ("B", "I", "W") or (action.kind == "I" and action.stage == 0):
            continue
        blocks = range(recomputed[action.stage])
        for block in blocks if action.kind == "W" and action.stage else reversed(blocks):
            call = (action.microbatch, block)
            found += call != latest[action.stage]
            latest[action.stage] = call
    return found
