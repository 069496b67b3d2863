"""The formulas of a grid, and where it sends less than as many ranks in one dimension."""

import pytest

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec

DIM, LAYERS = 8192, 32


def _sent(tensor: object, sequences: int, length: int) -> float:
    """Elements that a rank of a model with about 12 · 8192² weights per block sends over the tensor axes in a step, in billions."""
    model = {
        "preset": "8B",
        "dim": DIM,
        "layers": LAYERS,
        "heads": 1024,
        "kv_heads": 1024,
        "hidden": 21_504,
        "tied": True,
    }
    spec = {
        "model": model,
        "layout": {"tensor": tensor},
        "steps": 1,
        "global_batch": sequences,
        "data": {"seq_len": length},
    }
    setting = setting_of(TrainSpec.model_validate({**spec, "precision": "bf16"}), 32_768, "cuda")
    assert isinstance(setting, Setting)
    found = traffic(setting)
    tensor_axes = {flow: one.elements for flow, one in found.moved.items() if flow[0].startswith("tensor")}
    return sum(tensor_axes.values()) / 1e9


def _grid(rows: int) -> dict[str, object]:
    return {"mode": "2d", "shape": [rows, rows]}


@pytest.mark.parametrize(
    ("rows", "sequences", "length", "less"),
    [
        (2, 2, 4096, False),  # one token per column of the model
        (2, 8, 4096, True),
        (8, 8, 256, False),  # a quarter of a token
        (8, 8, 1024, True),
        (32, 32, 1024, True),
    ],
)
def test_a_grid_sends_less_from_a_number_of_tokens_on_that_falls_with_its_size(
    rows: int, sequences: int, length: int, less: bool
) -> None:
    assert (_sent(_grid(rows), sequences, length) < _sent(rows**2, sequences, length)) == less


@pytest.mark.parametrize(("ranks", "one", "grid"), [(4, 260.9, 167.7), (64, 343.5, 73.4), (1024, 348.6, 20.3)])
def test_the_comparison_that_the_design_page_shows(ranks: int, one: float, grid: float) -> None:
    """32 sequences of 4,096 tokens."""
    rows = {4: 2, 64: 8, 1024: 32}[ranks]
    assert _sent(ranks, 32, 4096) == pytest.approx(one, abs=0.06)
    assert _sent(_grid(rows), 32, 4096) == pytest.approx(grid, abs=0.06)


def test_what_has_no_formula_says_so() -> None:
    spec = {"model": {"family": "gpt2"}, "layout": {"tensor": _grid(2)}, "steps": 1, "global_batch": 2}
    setting = setting_of(TrainSpec.model_validate(spec), 256, "cpu")
    assert isinstance(setting, Setting)
    found = traffic(setting)
    assert set(found.unknown) == {"tensor_row", "tensor_column"}
    assert not found.moved
