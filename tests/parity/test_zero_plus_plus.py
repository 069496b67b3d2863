"""ZeRO++: a secondary shard changes no bit, checkpoints fit other layouts, and the bytes sent are those of the formulas.

`test_textbook.py` compares quantised weights and gradients with a serial loop that rounds the same blocks.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.layouts import SMALLER
from harness.models import GPT2
from harness.ranks import assert_checkpoints_fit, train

from .test_parameter_server import assert_same_bits

Make = Callable[..., Any]


def secondary(layout: dict[str, Any], size: int = 2) -> dict[str, Any]:
    return {**layout, "zero": 3, "zero_plus_plus": {"secondary": size}}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "data4": ({"data": 4, "micro_batch": 2}, {}),
    "bf16": ({"data": 4, "micro_batch": 2}, {"precision": "bf16"}),
    "fp16": ({"data": 4}, {"precision": "fp16"}),
    "recompute": ({"data": 4}, {"recompute": "full"}),
    "compiled": ({"data": 4}, {"compile": True}),
    "groups": ({"data": 8, "shard": 4}, {}),
    "tensor": ({"data": 4, "tensor": 2}, {}),
    "context": ({"data": 2, "context": 2}, {}),
    "tied-gpt2": ({"data": 4}, {"model": {**GPT2, "tied": True}}),
    "prefetches": ({"data": 4}, {"overlap": {"prefetch": 3}}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_secondary_shard_changes_no_bit(name: str, root: Path, make_spec: Make) -> None:
    """Also of validations, whose gathers come from it until the next update."""
    layout, changes = CASES[name]
    found = train(make_spec(secondary(layout), steps=3, **changes), root)
    assert_same_bits(found, train(make_spec({**layout, "zero": 3}, steps=3, **changes), root))


@pytest.mark.parametrize(
    ("first", "then"),
    [(secondary({"data": 4}), {"data": 2, "zero": 1}), ({"tensor": 2}, secondary({"data": 4}))],
    ids=["to-zero1", "from-tensor"],
)
def test_checkpoints_fit_other_layouts(first: Any, then: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    assert_checkpoints_fit(first, then, root, make_spec, one_process)


@pytest.mark.parametrize("precision", ["fp64", "bf16"])
def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_bits(precision: str, root: Path, make_spec: Make) -> None:
    """Checkpoints have the masters, which are not rounded."""
    layout, name = {"data": 4, "zero": 3, "zero_plus_plus": SMALLER}, f"quantised-{precision}"
    whole = train(make_spec(layout, precision=precision, checkpoint={"every": 3, "final": False}), root, name)
    (path,) = [Path(data["path"]) for kind, data in whole["events"] if kind == "checkpoint"]
    resumed = train(make_spec(layout, precision=precision), root, f"{name}-then", resume=path)
    assert resumed["losses"] == whole["losses"][3:]
    assert all(np.array_equal(value, whole["parameters"][key]) for key, value in resumed["parameters"].items())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_low_precision_follows_full_messages(precision: str, root: Path, make_spec: Make) -> None:
    changes = {"precision": precision, "optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    layout = {"data": 4, "zero": 3}
    found = train(make_spec({**layout, "zero_plus_plus": SMALLER}, **changes), root)
    expected = train(make_spec(layout, **changes), root)
    assert found["losses"] != expected["losses"]
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.01)


#: Layout of ZeRO++ with 16 sequences and what it says of its messages: bits of weights and of gradients; 0: as they are.
SENT: dict[str, tuple[dict[str, Any], dict[str, Any], int, int]] = {
    "all-three": ({"data": 4, "zero": 3, "micro_batch": 2}, SMALLER, 8, 4),
    "weights": ({"data": 4, "zero": 3}, {"weights": "int8", "block": 64}, 8, 0),
    "secondary": ({"data": 4, "zero": 3, "micro_batch": 2}, {"secondary": 2}, 0, 0),
    "gradients": ({"data": 4, "zero": 3}, {"gradients": "int8"}, 0, 8),
    "by-node": ({"data": 8, "zero": 3, "micro_batch": 1}, {"gradients": "int4", "node": 4}, 0, 4),
    "zero2": ({"data": 4, "zero": 2, "micro_batch": 2}, {"gradients": "int8", "node": 2}, 0, 8),
    "zero1": ({"data": 4, "zero": 1, "micro_batch": 2}, {"gradients": "int8"}, 0, 8),
}


@pytest.mark.parametrize("name", SENT)
def test_bytes_equal_the_formula(name: str, root: Path, make_spec: Make) -> None:
    """Of all ranks together, in float64, whose scales have 8 bytes."""
    layout, given, of_weights, of_gradients = SENT[name]
    run = train(make_spec({**layout, "zero_plus_plus": given}, steps=2, eval={"batches": 1}), root)
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    shapes = [value.shape for value in run["parameters"].values()]
    n, times = layout["data"], 16 // layout["data"] // layout.get("micro_batch", 16 // layout["data"])
    shards = [-(-shape[0] // n) * math.prod(shape[1:]) for shape in shapes]
    weights, gradients = (message(shards, bits, given.get("block", 256)) for bits in (of_weights, of_gradients))
    gathers = 2 * times if layout["zero"] == 3 else 1
    s = given.get("secondary", n)
    far = 1 if s < n else gathers
    gathered = far * weights * (n - 1) + (gathers - far) * n * weights * (s - 1) / s
    node = (given.get("node") or s % n) if of_gradients else 0
    inside, across = (n * (node - 1) / node, n / node - 1) if node else (n - 1, 0)
    reductions = 1 if layout["zero"] == 1 else times
    reduced = reductions * gradients * (inside + across)
    kinds = {"all_gather": gathered * n, "all_to_all" if of_gradients else "reduce_scatter": reduced * n}
    assert {kind: total(found, kind) for kind in kinds} == pytest.approx(kinds)
    if across:
        assert found["traffic"]["nodes"]["all_to_all"]["bytes"] == pytest.approx(across * reductions * gradients)


def message(shards: list[int], bits: int, block: int) -> int:
    """Bytes of a rank's shards in float64, or quantised."""
    if not bits:
        return 8 * sum(shards)
    return sum(math.ceil(shard * bits / 8) + 8 * math.ceil(shard / block) for shard in shards)


def total(found: Any, kind: str) -> float:
    """Bytes of one kind of collective on all axes and ranks."""
    return sum(kinds[kind]["bytes"] for kinds in found["traffic_sum"].values() if kind in kinds)
