"""Formulas from numbers alone: which quantities of a job have one. `tests/parity/test_cost_inputs.py` measures."""

from typing import Any

import pytest

from shardyard.strategies.cost.estimate import Formula, Setting, Unknown, axis_names
from shardyard.strategies.cost.memory import memory, state_bytes
from shardyard.strategies.layout import Layout
from shardyard.workers.cost_inputs import planned_setting, setting_of
from shardyard.workers.device_choices import DeviceKind
from shardyard.workers.spec import TrainSpec


def setting(layout: dict[str, Any], **train: Any) -> Setting | Unknown:
    spec = {"steps": 1, "global_batch": 16, "layout": layout, "precision": "bf16", **train}
    return setting_of(TrainSpec.model_validate(spec), 256, "cpu")


@pytest.mark.parametrize(("gradients", "size"), [("fp32", 4), ("compute", 2)])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_state_of_all_ranks_is_the_papers(zero: int, gradients: str, size: int) -> None:
    """16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N, 16Ψ/N, where N divides every parameter; with gradients in fp32 2 bytes more per gradient."""
    precision = {"compute": "bf16", "gradients": gradients}
    found = setting({"data": 4, "zero": zero}, model={"preset": "124M"}, precision=precision)
    assert isinstance(found, Setting)
    said = memory(found)
    total = 0.0
    for kind in ("parameters", "gradients", "optimizer"):
        formula = said[kind]
        assert isinstance(formula, Formula)
        total += formula.low
    psi = sum(weight.elements for weight in found.decoder.held(found.layout, 0))
    assert total == pytest.approx(state_bytes(zero, psi, 4, size), rel=1e-4)


@pytest.mark.parametrize("zero", [1, 2])
def test_under_a_pipeline_sums_in_fp32_have_a_formula(zero: int) -> None:
    layout = {"pipeline": 2, "data": 2, "zero": zero}
    wide, narrow = (setting(layout, precision={"compute": "bf16", "gradients": kind}) for kind in ("fp32", "compute"))
    assert isinstance(wide, Setting) and isinstance(narrow, Setting)
    gradients, parameters = memory(wide)["gradients"], memory(wide)["parameters"]
    assert isinstance(gradients, Formula) and isinstance(parameters, Formula)
    assert gradients.high == 2 * parameters.high
    assert isinstance(memory(narrow)["gradients"], Unknown)


@pytest.mark.parametrize(
    ("layout", "train"),
    [
        ({"pipeline": 2}, {}),
        ({"data": 2, "zero": 3}, {}),
        ({"context": 2}, {}),
        ({}, {"compile": True}),
        ({}, {"offload": {"activations": True}}),
        ({"pipeline": 2}, {"model": {"tied": True}}),
    ],
    ids=str,
)
def test_activations_that_no_formula_covers(layout: dict[str, Any], train: dict[str, Any]) -> None:
    found = setting(layout, **train)
    assert isinstance(found, Setting)
    assert isinstance(memory(found)["activations"], Unknown)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("degree", [2, 3, 8])
def test_a_vocabulary_that_the_tensor_degree_does_not_divide_counts_each_row_once(degree: int, tied: bool) -> None:
    sizes = {"dim": 384, "heads": 24, "kv_heads": 24, "hidden": 768, "vocab": 50_257, "tied": tied}
    whole = {"loss": {"chunk_tokens": 4096}}  # a chunk has other sizes
    found = setting({"tensor": degree, "sequence": False}, model={"preset": "nano", **sizes}, **whole)
    assert isinstance(found, Setting)
    rows = -(-50_257 // degree)
    fewer = degree * rows - 50_257  # that the last rank has
    held = [found.decoder.held(found.layout, 0, rank) for rank in range(degree)]
    table = [max(weight.rows for weight in weights) for weights in held]
    assert table[0] == (50_257 if not tied else rows)  # one's own embedding is cut by columns
    assert sum(weights[0 if tied else -1].rows for weights in held) == 50_257
    said = memory(found)
    for kind, per_element in (("parameters", 2), ("optimizer", 12)):
        formula = said[kind]
        assert isinstance(formula, Formula)
        assert formula.high - formula.low == per_element * 384 * fewer
    logits = said["activations"]
    assert isinstance(logits, Formula)
    assert logits.high - logits.low == found.tokens * 4 * fewer


def test_neither_experts_nor_a_module_of_ones_own_have_formulas() -> None:
    assert isinstance(setting({}, model={"family": "moe", "preset": "nano"}), Unknown)
    assert isinstance(setting({}, model={"import": "mine:model"}), Unknown)


LAYOUTS = [
    {"data": 2, "tensor": 2, "pipeline": 2},
    {"data": 2, "tensor": {"mode": "2d", "shape": [2, 2]}},
    {"tensor": {"mode": "2.5d", "shape": [2, 2, 2]}},
    {"data": 2, "tensor": {"mode": "3d", "shape": [2, 2, 2]}},
    {"data": 2, "tensor": {"mode": "2.5d", "shape": [2, 2, 2]}, "pipeline": 2},
    {"context": 4, "ulysses": 2},
    {"context": 8, "ulysses": 2, "ring_window": 2},
    {"data": 2, "context": 8, "ulysses": 2, "ring_window": 2, "context_inner": "ring"},
    {"context": 2, "tensor": 2},
    {"data": 2, "context": 2, "ulysses": 2},
    {"data": 4, "zero": 3, "shard": 2, "pipeline": 2},
    {"data": 2, "context": 2, "zero": 3, "shard": 2},
    {"data": 2, "context": 2, "zero": 3, "zero_plus_plus": {"secondary": 2, "gradients": "int4"}},
    {"data": 8, "tensor": 2, "zero": 3, "zero_plus_plus": {"secondary": 4, "gradients": "int4", "node": 2}},
    {"data": 8, "zero": 3, "shard": 4, "zero_plus_plus": {"gradients": "int8", "node": 2}},
    {},
]


@pytest.mark.parametrize("degrees", LAYOUTS, ids=str)
def test_traffic_is_named_as_the_mesh_names_it(degrees: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.telemetry.comm_counter import axes_of

    layout = Layout.model_validate(degrees)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=layout.world_size)
    try:
        mesh = make_mesh(layout, torch.device("cpu"))
        named = {name: axes_of(mesh)[axis.group.group_name] for name, axis in mesh.axes.items() if axis.group}
    finally:
        dist.destroy_process_group()
    expected = axis_names(layout)
    assert named.items() >= {axis: name for axis, name in expected.items() if axis in named}.items()
    assert expected.keys() <= named.keys()


def test_a_split_by_profile_has_no_formulas() -> None:
    found = setting({"pipeline": {"stages": 2, "split": "profile"}})
    assert isinstance(found, Unknown) and "measured before the first step" in found.reason


@pytest.mark.parametrize(
    ("layout", "device", "capacity", "rows"),
    [
        ({"data": 2, "expert": 2}, "cuda", None, 2),
        ({"data": 2, "expert": 2}, "cpu", 1.25, 2),
        ({"data": 2}, "cuda", 1.25, 2),
        ({"data": 2, "expert": 2}, "cuda", 1.25, 2.5),
        ({"data": 2, "expert": 2}, "cuda", 3.0, 4),  # no expert can get more rows than there are tokens
        ({"data": 2, "context": 2, "expert": 2}, "cuda", 1.25, 4),  # of a whole sequence's, all may be on one rank
    ],
)
def test_buffers_of_fixed_size_have_rows_of_no_token(
    layout: dict[str, Any], device: DeviceKind, capacity: float | None, rows: float
) -> None:
    model = {"family": "moe", "preset": "nano", "experts": 4, "top_k": 2, "capacity_factor": capacity}
    spec = {
        "steps": 1,
        "global_batch": 16,
        "layout": layout,
        "precision": "bf16",
        "model": model,
        "data": {"seq_len": 64},
    }
    train = TrainSpec.model_validate(spec)
    architecture = train.architecture(256)
    assert architecture is not None
    assert planned_setting(train, architecture, device).expert_rows == pytest.approx(rows)
