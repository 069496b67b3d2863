"""The formulas that the product shows are what a probe measures: traffic exactly, to the element and byte; memory within a few percent.

What the formulas do not know they say, and then no number is compared; that they know what is listed here is a part of the test.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.hf_models import save_hf_model
from harness.layouts import CUBE, DEEP, GRID, QUANTISED_LAYOUTS
from harness.models import GPT2, LLAMA
from harness.ranks import train
from harness.textbook_packed import save_records

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Formula, Setting
from shardyard.strategies.cost.memory import memory
from shardyard.strategies.cost.plan import plan
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec

Make = Callable[..., Any]

#: Activations count tables and scales that the formula leaves out.
SMALL, ABOUT = 0.02, 0.1

WIDE = {**LLAMA, "dim": 128, "hidden": 352}
UNTIED = {**LLAMA, "kv_heads": 4}
LONG = {**LLAMA, "layers": 8}  # two blocks in each of four stages
NARROW = {"compute": "bf16", "gradients": "compute"}
UNCLIPPED = {"lr": 3e-3, "clip_norm": None}

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"model": WIDE}),
    ({}, {"model": WIDE, "precision": "bf16"}),
    ({}, {"model": {**GPT2, "dim": 128, "hidden": 512}, "precision": "fp32", "optimizer": {"name": "sgd", "lr": 0.01}}),
    ({}, {"model": WIDE, "precision": "bf16", "recompute": "full"}),
    ({}, {"model": WIDE, "precision": "fp32", "recompute": "selective"}),
    ({}, {"model": WIDE, "precision": "bf16", "recompute": "every-2"}),
    ({"data": 2}, {"precision": "bf16"}),
    ({"data": 2}, {"precision": NARROW}),
    ({"data": 2, "zero": 1}, {"precision": "fp32"}),
    ({"data": 2, "zero": 1, "micro_batch": 2}, {"precision": "bf16", "model": {**LLAMA, "tied": True}}),
    ({"data": 2, "zero": 1, "micro_batch": 2}, {"precision": NARROW}),
    ({"data": 2, "zero": 2, "micro_batch": 2}, {"precision": "bf16"}),
    ({"data": 2, "zero": 2, "micro_batch": 2}, {"precision": NARROW}),
    ({"data": 2, "zero": 3, "micro_batch": 4}, {"precision": "bf16"}),
    ({"data": 3, "zero": 2}, {}),
    ({"data": 3, "zero": 3}, {}),
    ({"data": 4, "zero": 3, "shard": 2}, {"precision": "bf16"}),
    ({"tensor": 2, "sequence": False}, {"precision": "bf16", "model": {**WIDE, "kv_heads": 4}}),
    ({"tensor": 2, "sequence": False, "micro_batch": 4}, {"recompute": "full"}),
    ({"tensor": 2}, {"precision": "bf16", "model": {**WIDE, "kv_heads": 4}}),
    ({"tensor": 2}, {"precision": "bf16", "model": {**WIDE, "kv_heads": 4, "vocab": 257}}),
    ({"tensor": 2}, {"precision": "bf16", "model": {**WIDE, "kv_heads": 4, "vocab": 257, "tied": True}}),
    (
        {"tensor": 4, "sequence": False},
        {"model": {**UNTIED, "vocab": 257, "tied": True}, "loss": {"label_smoothing": 0.1}},
    ),
    ({"tensor": 4, "micro_batch": 4}, {"model": UNTIED, "recompute": "full", "loss": {"label_smoothing": 0.1}}),
    ({"tensor": 2}, {"model": UNTIED, "precision": "bf16", "loss": {"chunk_tokens": 64}}),
    ({}, {"model": WIDE, "precision": "bf16", "loss": {"chunk_tokens": 64}}),
    ({"tensor": GRID}, {"precision": "bf16", "model": {**WIDE, "vocab": 257, "tied": True}}),
    ({"tensor": GRID, "micro_batch": 4}, {"model": UNTIED, "recompute": "full", "loss": {"label_smoothing": 0.1}}),
    ({"data": 2, "tensor": GRID, "zero": 1}, {"precision": "bf16"}),
    ({"tensor": DEEP}, {"precision": "bf16", "model": {**WIDE, "vocab": 257, "tied": True}}),
    ({"tensor": DEEP, "zero": 1, "micro_batch": 4}, {"model": UNTIED, "recompute": "full"}),
    ({"tensor": GRID, "pipeline": 2, "micro_batch": 4}, {"precision": "bf16", "model": {**WIDE, "vocab": 257}}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "gpipe", "micro_batch": 2}, {"recompute": "full"}),
    (
        {"tensor": GRID, "pipeline": 2, "schedule": "interleaved", "micro_batch": 4},
        {"model": LONG, "recompute": "every-2", "loss": {"label_smoothing": 0.1}},
    ),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zb-h1", "micro_batch": 4}, {"precision": "bf16"}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zb-h2", "micro_batch": 4}, {"recompute": "full"}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": LONG}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": LONG, "recompute": "full"}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "interleaved-zb", "micro_batch": 4}, {"model": LONG}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "dualpipev", "micro_batch": 4}, {"model": LONG, "recompute": "full"}),
    ({"tensor": CUBE}, {"precision": "bf16", "model": {**WIDE, "vocab": 257, "tied": True}}),
    ({"tensor": CUBE, "micro_batch": 4}, {"model": UNTIED, "recompute": "full", "loss": {"label_smoothing": 0.1}}),
    ({"data": 2, "tensor": 2, "zero": 1}, {"precision": "bf16"}),
    ({"data": 2, "tensor": 2, "zero": 1}, {"precision": NARROW}),
    ({"data": 2, "tensor": 2, "zero": 2, "micro_batch": 2}, {"precision": "bf16"}),
    ({"data": 2, "tensor": 2, "zero": 3, "micro_batch": 4}, {"precision": "bf16"}),
    ({"data": 4, "zero": 3, "micro_batch": 2, "zero_plus_plus": {"secondary": 2}}, {"precision": "bf16"}),
    ({"data": 2, "context": 2, "zero": 3, "zero_plus_plus": {"secondary": 2, "gradients": "int4"}}, {}),
    *((layout, {"precision": "bf16"}) for layout in QUANTISED_LAYOUTS.values()),
    ({"data": 3, "zero": 2, "zero_plus_plus": {"gradients": "int4", "block": 34}}, {"precision": NARROW}),
    ({"data": 2, "parameter_server": {"servers": 2}, "micro_batch": 4}, {"precision": "bf16"}),
    ({"data": 3, "parameter_server": {"servers": 1}}, {"precision": NARROW}),
    ({"data": 2, "parameter_server": {"servers": 1}}, {"optimizer": {"name": "sgd", "lr": 0.01}}),
    ({"data": 2, "parameter_server": {"servers": 2, "mode": "async"}, "micro_batch": 4}, {"precision": "bf16"}),
    ({"data": 3, "parameter_server": {"servers": 1, "mode": "stale", "bound": 1}}, {"precision": NARROW}),
    ({"context": 2, "ulysses": 2}, {"precision": "bf16"}),
    ({"context": 2}, {"precision": "bf16"}),
    ({"context": 4, "ulysses": 2, "zero": 1}, {"recompute": "full"}),
    ({"data": 2, "context": 2}, {"precision": "bf16", "recompute": "selective"}),
    ({"context": 2, "ulysses": 2}, {"precision": "bf16", "recompute": "selective"}),
    ({"context": 2}, {"recompute": {"mode": "selective", "every": 2}}),
    ({"context": 2, "ulysses": 2}, {"recompute": {"mode": "selective", "every": 2}}),
    ({"context": 2, "pipeline": 2, "schedule": "interleaved", "micro_batch": 4}, {"recompute": "every-2"}),
    ({"context": 2, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": LONG}),
    ({"context": 2, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": LONG, "recompute": "full"}),
    ({"context": 2, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": LONG, "recompute": "selective"}),
    ({"context": 2, "pipeline": 2, "schedule": "zb-h1", "micro_batch": 4}, {"model": LONG, "recompute": "full"}),
    ({"context": 2, "pipeline": 2, "schedule": "dualpipev", "micro_batch": 4}, {"model": LONG, "recompute": "full"}),
    (
        {"context": 2, "ulysses": 2, "pipeline": 2, "schedule": "interleaved-zb", "micro_batch": 4},
        {"model": {**LLAMA, "layers": 12}, "recompute": "every-2"},
    ),
    ({"context": 4, "ulysses": 4}, {"precision": "bf16"}),
    ({"context": 4, "ring_window": 2, "zero": 1}, {"precision": "bf16", "recompute": "full"}),
    ({"context": 4, "ulysses": 2, "context_inner": "ring"}, {"precision": "bf16"}),
    ({"context": 2, "context_method": "all-gather"}, {"precision": "bf16"}),
    ({"context": 2, "context_method": "all-gather"}, {"precision": "bf16", "recompute": "selective"}),
    ({"context": 2, "context_method": "ring-self-attention"}, {"precision": "bf16", "recompute": "selective"}),
    ({"context": 4}, {"precision": "bf16", "recompute": "selective"}),  # the parts that are merged are not kept
    ({"context": 4, "ring_window": 2}, {"precision": "bf16", "recompute": "selective"}),
    ({"context": 4, "context_method": "all-gather"}, {"precision": "bf16", "recompute": "selective"}),
    ({"pipeline": 2}, {"precision": "bf16"}),
    ({"pipeline": 4, "schedule": "gpipe"}, {}),
    ({"pipeline": 2, "schedule": "zbv"}, {}),
    ({"pipeline": 2, "schedule": "interleaved", "tensor": 2}, {"precision": "bf16"}),
    ({"pipeline": 2, "data": 2, "zero": 1}, {"precision": "bf16"}),
    ({"pipeline": 2, "data": 2, "zero": 2}, {"precision": "bf16"}),
    ({"pipeline": 2, "schedule": "zbv", "tensor": 2}, {"precision": "bf16", "model": UNTIED}),
    ({"pipeline": 2, "data": 2, "zero": 3}, {"precision": "bf16"}),
    ({"pipeline": 2, "schedule": "zb-h1", "tensor": 2}, {"precision": "bf16", "model": UNTIED}),
    ({"pipeline": 2, "schedule": "zb-h2", "data": 2, "zero": 2}, {"precision": "bf16"}),
    ({"pipeline": 2, "schedule": "2bw"}, {"precision": "bf16", "steps": 3}),  # the last step runs no pass of a next one
    ({"pipeline": 4, "schedule": "2bw", "micro_batch": 2}, {"steps": 3}),
    ({"pipeline": 2, "data": 2, "schedule": "2bw"}, {"precision": NARROW, "steps": 3}),
    ({"pipeline": 4, "schedule": "2bw", "micro_batch": 4}, {"steps": 3}),
    ({"pipeline": 2, "data": 2, "schedule": "2bw"}, {"precision": NARROW, "steps": 3, "optimizer": UNCLIPPED}),
    (
        {"pipeline": 4, "schedule": "pipedream"},
        {"precision": "bf16", "steps": 6},
    ),  # the last three send no hidden states
    ({"pipeline": 2, "data": 2, "schedule": "pipedream"}, {"precision": NARROW, "steps": 3}),
    ({"pipeline": 4, "schedule": "pipedream", "vertical_sync": True}, {"steps": 6}),
]


@pytest.mark.parametrize(("layout", "changes"), CASES, ids=str)
def test_the_formulas_are_what_a_probe_measures(
    layout: dict[str, Any], changes: dict[str, Any], root: Path, make_spec: Make
) -> None:
    spec = make_spec(layout, **{"steps": 2, "eval": {"batches": 1}, **changes})
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    run = train(spec, root)
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    _compare_traffic(setting, found["traffic"])
    _compare_memory(setting, found["memory"])


QWEN3 = {**LLAMA, "preset": "qwen3-nano"}
QWEN3_UNTIED = {**QWEN3, "tied": False}

#: Of biases, learned positions and norms of heads, which only the formulas of grids and cubes count.
DIVIDED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tensor": GRID}, {"model": {**GPT2, "vocab": 257}, "precision": "bf16"}),
    ({"tensor": GRID, "micro_batch": 4}, {"model": {**GPT2, "tied": True}, "recompute": "full"}),
    ({"tensor": GRID}, {"model": QWEN3, "precision": "bf16", "recompute": "every-2"}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": GPT2, "precision": "bf16"}),
    ({"tensor": GRID, "pipeline": 2, "micro_batch": 4}, {"model": QWEN3_UNTIED, "recompute": "full"}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "interleaved-zb", "micro_batch": 4}, {"model": QWEN3_UNTIED}),
    ({"tensor": DEEP, "zero": 1, "micro_batch": 4}, {"model": GPT2}),
    ({"tensor": DEEP, "pipeline": 2, "micro_batch": 4}, {"model": GPT2, "precision": "bf16"}),
    ({"tensor": CUBE, "pipeline": 2, "micro_batch": 4}, {"model": QWEN3_UNTIED, "precision": "bf16"}),
    ({"tensor": CUBE, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": GPT2, "recompute": "full"}),
    ({"tensor": DEEP}, {"model": QWEN3, "precision": "bf16"}),
    ({"tensor": CUBE}, {"model": {**GPT2, "vocab": 257, "tied": True}, "precision": "bf16"}),
    ({"tensor": CUBE, "micro_batch": 4}, {"model": GPT2, "recompute": "full", "loss": {"label_smoothing": 0.1}}),
    ({"tensor": CUBE, "micro_batch": 8}, {"model": QWEN3, "precision": "fp32", "recompute": "full"}),
]


@pytest.mark.parametrize(("layout", "changes"), DIVIDED, ids=str)
def test_the_traffic_of_all_families_on_grids_and_cubes(
    layout: dict[str, Any], changes: dict[str, Any], root: Path, make_spec: Make
) -> None:
    _assert_traffic(make_spec(layout, **{"steps": 2, "eval": {"batches": 1}, **changes}), root)


@pytest.mark.parametrize("tensor", [GRID, CUBE], ids=["grid", "cube"])
def test_the_traffic_of_biases_of_queries_and_keys_alone(tensor: dict[str, Any], root: Path, make_spec: Make) -> None:
    changes = {"model": {"from": str(save_hf_model(root, "qwen2"))}, "precision": "bf16"}
    _assert_traffic(make_spec({"tensor": tensor, "micro_batch": 8}, steps=2, eval={"batches": 1}, **changes), root)


@pytest.mark.parametrize("tensor", [GRID, CUBE], ids=["grid", "cube"])
def test_the_traffic_of_positions_in_packed_documents(tensor: dict[str, Any], root: Path, make_spec: Make) -> None:
    packed = {**save_records(root), "documents": "packed", "seq_len": 32}
    _assert_traffic(make_spec({"tensor": tensor}, steps=2, eval={"batches": 1}, data=packed, model=GPT2), root)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zbv"])
def test_the_activations_of_a_grid_in_a_pipeline_are_those_of_its_plan(
    schedule: str, root: Path, make_spec: Make
) -> None:
    """Those of the fullest rank, as the plan has them with the logits of the micro-batches that wait: `memory` has no formula of them."""
    layout = {"tensor": GRID, "pipeline": 2, "schedule": schedule, "micro_batch": 4}
    spec = make_spec(layout, steps=2, eval={"batches": 1}, model=WIDE, precision="bf16")
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    planned = plan(setting)
    assert planned.moment == "backward"
    (found,) = [data for kind, data in train(spec, root)["events"] if kind == "probe"]
    held = planned.by_kind["activations"] + planned.by_kind.get("logits", 0)
    assert found["memory"]["activations"]["max"] == pytest.approx(held, rel=ABOUT)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ({}, {}),
        ({}, {"recompute": "selective"}),
        ({"data": 2, "zero": 3}, {"precision": "fp32"}),
        ({"context": 2, "ulysses": 2}, {}),
        ({"tensor": GRID, "pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {}),
    ],
    ids=str,
)
def test_the_activations_of_norms_of_heads(
    layout: dict[str, Any], changes: dict[str, Any], root: Path, make_spec: Make
) -> None:
    spec = make_spec(layout, **{"steps": 2, "eval": {"batches": 1}, "model": QWEN3, "precision": "bf16", **changes})
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    (found,) = [data for kind, data in train(spec, root)["events"] if kind == "probe"]
    _compare_memory(setting, found["memory"])


@pytest.mark.parametrize("layout", [{"context": 4}, {"context": 4, "context_method": "all-gather"}], ids=str)
def test_selective_recompute_keeps_attention_within_documents_over_ranks(
    layout: dict[str, Any], root: Path, make_spec: Make
) -> None:
    packed = {**save_records(root), "documents": "packed", "seq_len": 32}
    changes = {"data": packed, "precision": "bf16", "recompute": "selective"}
    spec = make_spec(layout, **{"steps": 2, "eval": {"batches": 1}, **changes})
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    (found,) = [data for kind, data in train(spec, root)["events"] if kind == "probe"]
    _compare_traffic(setting, found["traffic"])
    _compare_memory(setting, found["memory"])


def _assert_traffic(spec: dict[str, Any], root: Path) -> None:
    """What a probe counts is what the formulas say."""
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    (found,) = [data for kind, data in train(spec, root)["events"] if kind == "probe"]
    _compare_traffic(setting, found["traffic"])


def _compare_traffic(setting: Setting, measured: dict[str, dict[str, dict[str, float]]]) -> None:
    said = traffic(setting)
    assert not said.unknown, said.unknown
    reported = {(axis, kind): numbers for axis, kinds in measured.items() for kind, numbers in kinds.items()}
    numbers = {flow: (one["elements"], one["bytes"]) for flow, one in reported.items() if one["elements"]}
    expected = {flow: (moved.elements, moved.bytes) for flow, moved in said.moved.items()}
    assert {flow: pytest.approx(pair, rel=1e-9) for flow, pair in expected.items()} == numbers


def _compare_memory(setting: Setting, measured: dict[str, dict[str, float]]) -> None:
    for kind, said in memory(setting).items():
        if isinstance(said, Formula):
            near = ABOUT if kind == "activations" else SMALL
            least, most = measured[kind]["min"], measured[kind]["max"]
            assert said.low * (1 - near) <= least and most <= said.high * (1 + near), (kind, said, measured[kind])
            if said.low == said.high:
                assert least == pytest.approx(said.low, rel=near), (kind, said, measured[kind])
