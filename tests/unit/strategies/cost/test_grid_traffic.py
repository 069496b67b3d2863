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


def _setting(model: dict[str, object], layout: dict[str, object]) -> Setting:
    """Of two micro-batches of 4 · 16 tokens."""
    spec = {"model": model, "layout": {"tensor": _grid(2), "micro_batch": 4, **layout}, "steps": 1, "global_batch": 8}
    setting = setting_of(TrainSpec.model_validate({**spec, "data": {"seq_len": 16}, "precision": "bf16"}), 256, "cpu")
    assert isinstance(setting, Setting)
    return setting


def test_biases_learned_positions_and_layer_norms_by_hand() -> None:
    """1,024 positions; two layers of width 32, with 64 columns between them; in all-reduces of 2 · n/2 elements."""
    model = {"family": "gpt2", "layers": 2, "dim": 32, "heads": 4, "hidden": 64}
    moved = traffic(_setting(model, {})).moved
    biases = (3 * 32 + 64 + 32 + 32) / 2
    norms, positions = 2 * 5 * 32 / 2, 1024 * 32 / 2 / 2
    table, weights = 256 * 32 / 2 / 2, 32 * (4 * 32 + 2 * 64) / 2 / 2
    assert moved["tensor_column", "all_reduce"].elements == 2 * 2 * 5 * (2 * 2 * 16) + 3 * (2 * 2 * 16)
    of_copies = moved["tensor_row", "all_reduce"]
    assert of_copies.elements == 2 * (2 * biases + norms)
    assert of_copies.bytes == 2 * (2 * 2 * biases + 4 * norms)
    assert moved["tensor_row", "broadcast"].elements == 2 * (2 * 2 * weights + 3 * table + positions)
    assert moved["tensor_row", "reduce"].bytes == 2 * (2 * (2 * weights + table) + 4 * (table + positions))


def test_norms_of_heads_by_hand() -> None:
    """Of queries and keys, 64 numbers each, along rows and columns."""
    model = {"preset": "qwen3-nano", "layers": 3}
    norms, plain = (traffic(_setting({**model, "preset": name}, {})).moved for name in ("qwen3-nano", "nano"))
    for axis in ("tensor_row", "tensor_column"):
        more = norms[axis, "all_reduce"].elements - plain[axis, "all_reduce"].elements
        assert more == 2 * 3 * 2 * 64


def test_with_more_than_two_replicas_reduced_gradients_by_hand() -> None:
    """Per step and rank, in fp32: along a column norms and biases in quarters, 9 of 16 numbers and 1 of 32 per layer, 2 of 16 at the end.

    Along a row norms of heads alone, of 64 numbers. Everything else is sent as often as with two replicas.
    """
    gpt2 = {"family": "gpt2", "layers": 2, "dim": 32, "heads": 4, "hidden": 64}
    two, four = (
        traffic(_setting(gpt2, {"data": count, "micro_batch": 8 // count, "zero": 1})).moved for count in (2, 4)
    )
    sent = {flow: (one.elements - two[flow].elements, one.bytes - two[flow].bytes) for flow, one in four.items()}
    elements = (2 * (9 * 4 + 8) + 2 * 4) / 2
    assert sent["tensor_row", "broadcast"] == (elements, 4 * elements)
    assert (
        sent["tensor_column", "broadcast"][0] == -two["tensor_column", "broadcast"].elements / 2
    )  # of half the tokens
    heads = {"preset": "qwen3-nano", "layers": 3}
    two, four = (traffic(_setting(heads, {"data": count, "micro_batch": 8 // count})).moved for count in (2, 4))
    of_heads = four["tensor_column", "broadcast"].elements - two["tensor_column", "broadcast"].elements / 2
    assert of_heads == 3 * 2 * 64 / 2


FOUR = {"layers": 4, "dim": 32, "heads": 4, "kv_heads": 4, "hidden": 64}
#: Elements of a block's inputs along the row, and of its weights along the column, per step.
INPUTS, WEIGHTS = (2 * 32 + 32 + 64) * 2 * 4 * 16 / 4, (32 * (3 * 32 + 2 * 64) + (32 + 64) * 32) / 2 / 2 * 2
TOKENS, TABLE = 2 * 4 * 16 / 4, 256 * 32 / 2 / 2 * 2


@pytest.mark.parametrize(
    ("schedule", "blocks", "ends", "norms", "twice"),
    [("1f1b", [2, 2], 0, 4, 0), ("zb-h1", [2, 2], 0, 4, 0), ("zbv", [1, 1, 1, 1], 1, 5, 3)],
)
def test_a_pipelines_first_rank_sends_for_its_own_stages(
    schedule: str, blocks: list[int], ends: int, norms: int, twice: int
) -> None:
    """Two blocks in either case. ZBV's first rank has the head, too, and a block whose norms run backward in two halves."""
    layout = {"pipeline": {"stages": 2, "blocks": blocks}, "schedule": schedule}
    found = traffic(_setting(FOUR, layout))
    moved = {flow: one.elements for flow, one in found.moved.items() if flow[0] != "pipeline"}
    assert moved == {
        ("tensor_column", "broadcast"): 2 * 2 * INPUTS + 2 * ends * 256 * TOKENS,
        ("tensor_column", "reduce"): 2 * INPUTS + ends * 256 * TOKENS,
        ("tensor_column", "all_reduce"): (2 * norms + twice + 3 * ends) * 2 * TOKENS,
        ("tensor_row", "broadcast"): 2 * 2 * WEIGHTS + (1 + 2 * ends) * TABLE,
        ("tensor_row", "reduce"): 2 * WEIGHTS + (1 + ends) * TABLE,
        ("tensor_row", "all_reduce"): (norms + twice) * 2 * 32 / 2,
    }
    assert not found.unknown
