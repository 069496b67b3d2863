"""Bytes per step equal the formulas, exactly: 2Ψ(N−1)/N elements for ZeRO-0, 1 and 2, 3Ψ(N−1)/N for ZeRO-3 (1910.02054, section 7)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.ranks import train

Make = Callable[..., Any]

MODEL = {"family": "llama", "preset": "nano", "layers": 4, "dim": 32, "heads": 4, "kv_heads": 2, "hidden": 64}


def probe(layout: Any, root: Path, make_spec: Make, **changes: Any) -> tuple[Any, int]:
    """Rank 0's probe of step 2, and Ψ."""
    run = train(make_spec(layout, steps=2, eval={"batches": 1}, **changes), root)
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    return found, sum(value.size for value in run["parameters"].values())


def moved(found: Any, axis: str = "data") -> tuple[float, float]:
    kinds = found["traffic"].get(axis, {}).values()
    return sum(kind["elements"] for kind in kinds), sum(kind["bytes"] for kind in kinds)


CASES = [
    (0, 2, {}),
    (1, 2, {}),
    (2, 2, {}),
    (3, 3, {}),
    (0, 2, {"micro_batch": 2}),
    (1, 2, {"micro_batch": 2}),
]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("stage", "times", "more"), CASES, ids=str)
def test_elements_equal_the_formula(stage: int, times: int, more: Any, ranks: int, root: Path, make_spec: Make) -> None:
    found, psi = probe({"data": ranks, "zero": stage, **more}, root, make_spec)
    elements, moved_bytes = moved(found)
    assert elements == times * psi * (ranks - 1) / ranks
    assert moved_bytes == elements * 8  # float64


def test_each_microbatch_reduces_in_stage_2_and_gathers_too_in_stage_3(root: Path, make_spec: Make) -> None:
    two, psi = probe({"data": 2, "zero": 2, "micro_batch": 2}, root, make_spec)  # 4 micro-batches
    assert moved(two)[0] == (4 + 1) * psi / 2
    three, _ = probe({"data": 2, "zero": 3, "micro_batch": 2}, root, make_spec)
    assert moved(three)[0] == 4 * 3 * psi / 2


def test_half_precision_halves_bytes(root: Path, make_spec: Make) -> None:
    found, psi = probe({"data": 2, "zero": 1}, root, make_spec, precision="bf16")
    assert moved(found) == (2 * psi / 2, 2 * 2 * psi / 2)


def test_groups_that_shard_move_less_between_them(root: Path, make_spec: Make) -> None:
    found, psi = probe({"data": 4, "zero": 3, "shard": 2}, root, make_spec)
    assert moved(found, "shard")[0] == 3 * psi / 2
    assert moved(found, "shard_replica")[0] == 2 * (psi / 2) / 2


def test_a_pipeline_sends_its_activations(root: Path, make_spec: Make) -> None:
    found, _ = probe({"pipeline": 2}, root, make_spec)
    sent = found["traffic"]["pipeline"]["send"]
    assert sent["elements"] == 16 * 32 * 32  # rank 0 sends [batch, seq, dim] forward; gradients come back


def test_tensor_traffic_is_on_its_own_axis(root: Path, make_spec: Make) -> None:
    found, _ = probe({"tensor": 2, "data": 2, "zero": 1}, root, make_spec)
    assert moved(found, "tensor")[0] > 0
    assert set(found["traffic"]["data"]) == {"reduce_scatter", "all_gather"}


def test_memory_is_told(root: Path, make_spec: Make) -> None:
    found, psi = probe({"data": 2, "zero": 1}, root, make_spec, precision="bf16")
    memory = found["memory"]
    assert memory["parameters"] == {"min": 2 * psi, "max": 2 * psi}
    assert memory["optimizer"]["max"] == pytest.approx(12 * psi / 2, rel=0.01)
    assert memory["activations"]["min"] > 0
