"""Snapshot memory from numbers alone; `tests/parity/test_snapshot_memory.py` compares it with real segments."""

from typing import Any

import pytest

from shardyard.strategies.cost.estimate import Formula, Setting, Unknown
from shardyard.strategies.cost.snapshots import rank_bytes, snapshot_memory
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec

#: 7B parameters, as Llama-2 has.
MODEL = {"layers": 32, "dim": 4096, "heads": 32, "kv_heads": 32, "hidden": 11008, "vocab": 32000, "tied": False}


def setting(layout: dict[str, Any], **train: Any) -> Setting:
    spec = {"steps": 1, "global_batch": 64, "layout": layout, "precision": "bf16", "model": MODEL, **train}
    found = setting_of(TrainSpec.model_validate(spec), 32000, "cuda")
    assert isinstance(found, Setting)
    return found


def node(layout: dict[str, Any], ranks_per_node: int = 8) -> float:
    found = snapshot_memory(setting(layout), ranks_per_node).node
    assert isinstance(found, Formula)
    return found.high


def test_the_numbers_of_7b_on_8_gpus() -> None:
    psi = sum(weight.elements for weight in setting({"data": 8}).decoder.held(setting({"data": 8}).layout, 0))
    assert 6.5e9 < psi < 7.0e9
    assert node({"data": 8, "zero": 1}) == pytest.approx(24 * psi)
    assert node({"data": 8, "zero": 3}) == pytest.approx(24 * psi)
    assert node({"data": 8, "zero": 0}) == pytest.approx(24 * psi), "each slice once, not once per replica"
    assert node({"data": 16, "zero": 1}) == pytest.approx(24 * psi), "half of it for replicas of the other node's ranks"
    assert node({"data": 16, "shard": 8, "zero": 3}) == pytest.approx(24 * psi)


def test_replicas_share_evenly() -> None:
    ranks = rank_bytes(setting({"data": 8, "zero": 0}))
    assert max(ranks) < 1.05 * min(ranks)


def test_grids_share_what_they_hold_and_a_cube_holds_each_matrix_once() -> None:
    grid = {"mode": "2d", "shape": [2, 2]}
    one, several, data = (
        rank_bytes(setting(layout))
        for layout in (
            {"tensor": grid},
            {"tensor": {"mode": "2.5d", "shape": [2, 2, 2]}},
            {"tensor": grid, "data": 2},
        )
    )
    assert several == data and sum(several) == sum(one)
    found = setting({"tensor": {"mode": "3d", "shape": [2, 2, 2]}})
    vectors = sum(weight.rows for weight in found.decoder.held(found.layout, 0) if weight.columns == 1)
    matrices = sum(weight.elements for weight in setting({}).decoder.held(setting({}).layout, 0) if weight.columns > 1)
    assert rank_bytes(found) == [2 * 12 * (matrices // 8 + vectors)] * 8


def test_ranks_add_up_to_their_nodes() -> None:
    found = setting({"pipeline": 2, "data": 2, "tensor": 2, "zero": 1})
    ranks = rank_bytes(found)
    said = snapshot_memory(found, 4)
    assert isinstance(said.rank, Formula) and isinstance(said.node, Formula)
    assert (said.rank.low, said.rank.high) == (min(ranks), max(ranks)) and said.rank.words == "2 × 12Ψ/2"
    assert said.node.low == said.node.high == sum(ranks), "each of two nodes holds the other's replicas"
    assert snapshot_memory(found, 8).node.high == sum(ranks)  # type: ignore[union-attr]


def test_a_thousand_ranks_take_no_time() -> None:
    assert len(rank_bytes(setting({"pipeline": 8, "data": 16, "tensor": 8, "zero": 1}, global_batch=512))) == 1024


def test_shared_ends_of_a_pipeline_have_no_formula() -> None:
    said = snapshot_memory(setting({"pipeline": 2}, model=MODEL | {"tied": True}), 2)
    assert isinstance(said.rank, Unknown) and isinstance(said.node, Unknown)
