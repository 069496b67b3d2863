"""Bytes per step by formula: an axis without a formula has a reason instead of a number."""

from typing import Any

import pytest

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting

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


@pytest.mark.parametrize("layout", [{"context": 2}, {"context": 2, "ulysses": 2}], ids=str)
@pytest.mark.parametrize("mode", ["selective", "full"])
def test_only_recomputed_blocks_exchange_keys_and_values_again(layout: dict[str, Any], mode: str) -> None:
    found = {every: again(layout, {"mode": mode, "every": every}) for every in (1, 2, 3, 4)}
    assert found == {1: 4, 2: 2, 3: 2, 4: 1}


@pytest.mark.parametrize(("stages", "recomputed"), [([3, 3, 3, 3], 4), ([3, 1, 2, 2], 3), ([1, 3, 1, 3], 2)], ids=str)
def test_blocks_are_counted_stage_by_stage(stages: list[int], recomputed: int) -> None:
    """Rank 0 has stages 0 and 2, and recomputes the first block of each, and the third where there is one."""
    pipeline = {"stages": 2, "blocks": stages}
    layout = {"context": 2, "pipeline": pipeline, "schedule": "interleaved", "micro_batch": 4}
    assert again(layout, "every-2", sum(stages)) == recomputed
    assert again(layout, "full", sum(stages)) == stages[0] + stages[2]
