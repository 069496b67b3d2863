"""The formulas of a cube and of grids with a depth, compared with one dimension and with a grid as the design page shows it."""

import itertools

import pytest

from shardyard.strategies.cost.communication import Traffic, traffic
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec

DIM, LAYERS, SEQUENCES = 8192, 32, 64


def _traffic(tensor: object, length: int) -> Traffic:
    """What a rank of a model with about 12 · 8192² weights per block sends in a step of 64 sequences."""
    heads = {"heads": 1024, "kv_heads": 1024}
    model = {"preset": "8B", "dim": DIM, "layers": LAYERS, **heads, "hidden": 21_504, "tied": True}
    spec = {"model": model, "layout": {"tensor": tensor}, "steps": 1, "global_batch": SEQUENCES}
    wanted = TrainSpec.model_validate({**spec, "data": {"seq_len": length}, "precision": "bf16"})
    setting = setting_of(wanted, 32_768, "cuda")
    assert isinstance(setting, Setting)
    found = traffic(setting)
    assert not found.unknown
    return found


def _sent(tensor: object, length: int) -> float:
    """The elements, in billions."""
    return sum(one.elements for one in _traffic(tensor, length).moved.values()) / 1e9


def _shape(mode: str, *shape: int) -> dict[str, object]:
    return {"mode": mode, "shape": list(shape)}


#: Ranks → the layouts that the page compares, with 10⁹ elements for 2,048 tokens per sequence.
COMPARED: dict[int, list[tuple[object, float]]] = {
    4: [(4, 260.9), (_shape("2d", 2, 2), 167.6)],
    8: [(8, 304.4), (_shape("2.5d", 2, 2, 2), 100.0), (_shape("3d", 2, 2, 2), 172.0)],
    64: [(64, 343.5), (_shape("2d", 8, 8), 73.3), (_shape("2.5d", 4, 4, 4), 44.8), (_shape("3d", 4, 4, 4), 64.5)],
    512: [(512, 348.3), (_shape("2.5d", 8, 8, 8), 17.3), (_shape("3d", 8, 8, 8), 18.8)],
}


@pytest.mark.parametrize("ranks", COMPARED)
def test_the_comparison_that_the_design_page_shows(ranks: int) -> None:
    for tensor, expected in COMPARED[ranks]:
        assert _sent(tensor, 2048) == pytest.approx(expected, abs=0.06)


def _crossing(first: object, second: object) -> float:
    """Tokens of a micro-batch, in widths of the model, from which the layout that grows more slowly sends less."""
    (x1, y1), (x2, y2) = ((_sent(tensor, 2048), _sent(tensor, 4096)) for tensor in (first, second))
    slopes, fixed = ((y1 - x1), (y2 - x2)), (2 * x1 - y1, 2 * x2 - y2)
    return (fixed[1] - fixed[0]) / (slopes[0] - slopes[1]) * SEQUENCES * 2048 / DIM


@pytest.mark.parametrize(
    ("ranks", "crossings"),
    [
        (4, [2.8]),
        (8, [1.8, 1.1, 2.9]),
        (64, [0.37, 0.76, 0.09, 3.7, None, 6.5]),
        (512, [0.43, 0.05, 13.5]),
    ],
)
def test_from_how_many_tokens_on_which_layout_sends_less(ranks: int, crossings: list[float | None]) -> None:
    """In the order of pairs; None: a cube always sends less than a grid of as many ranks."""
    layouts = [tensor for tensor, _ in COMPARED[ranks]]
    for (first, second), expected in zip(itertools.combinations(layouts, 2), crossings, strict=True):
        found = _crossing(first, second)
        assert found < 0 if expected is None else found == pytest.approx(expected, rel=0.05)


def test_a_cube_sends_the_numbers_of_tokens_and_sums_its_norms_over_two_lines() -> None:
    spec = {"layout": {"tensor": _shape("3d", 2, 2, 2)}, "steps": 1, "global_batch": 4, "precision": "fp32"}
    setting = setting_of(TrainSpec.model_validate({**spec, "data": {"seq_len": 64}}), 256, "cpu")
    assert isinstance(setting, Setting)
    moved = traffic(setting).moved
    of, tokens = setting.decoder, 4 * 64
    norms = (2 * of.layers + 1) * of.dim / 2
    assert moved["tensor_depth", "all_reduce"].elements == norms
    assert moved["tensor_column", "all_reduce"].elements == norms + 3 * tokens / 4
    gathered = moved["tensor_row", "all_gather"]
    assert gathered.bytes - 4 * gathered.elements == 4 * tokens / 4  # 8 bytes of a number, 4 of everything else


def _setting(model: dict[str, object], layout: dict[str, object]) -> Setting:
    """Of two micro-batches of 8 · 16 tokens."""
    cube = {"tensor": _shape("3d", 2, 2, 2), "micro_batch": 8, **layout}
    spec = {"model": model, "layout": cube, "steps": 1, "global_batch": 16, "precision": "bf16"}
    setting = setting_of(TrainSpec.model_validate({**spec, "data": {"seq_len": 16}}), 256, "cpu")
    assert isinstance(setting, Setting)
    return setting


def test_biases_learned_positions_and_layer_norms_by_hand() -> None:
    """What GPT-2 sends beyond a Llama: 1,024 positions, width 32, 64 columns in between; all-reduces are of 2 · n/2 elements.

    A Llama has one weight more in each of the two blocks.
    """
    model = {"layers": 2, "dim": 32, "heads": 4, "kv_heads": 4, "hidden": 64}
    gpt2, llama = (traffic(_setting({**model, "family": family}, {})).moved for family in ("gpt2", "llama"))
    into, out, norms = (3 * 32 + 64) / 2, 2 * 32 / 2, 5 * 32 / 2
    tokens, weight, own = 2 * 8 * 16 / 4, 64 * 32 / 8, 32 / 2
    expected = {
        ("tensor_depth", "all_reduce"): 2 * (2 * (into + out) + norms),
        ("tensor_row", "all_reduce"): 2 * (2 * into + 2 * 5 * tokens / 2),
        ("tensor_column", "all_reduce"): 2 * (2 * out + norms),
        ("tensor_depth", "all_gather"): 2 * (1024 / 2 * own - 2 * 2 * weight),
        ("tensor_depth", "reduce_scatter"): 2 * (1024 / 2 * own - 2 * weight),
        ("tensor_column", "all_gather"): 2 * (1024 / 4 * own),
        ("tensor_column", "reduce_scatter"): 2 * (1024 / 4 * own),
    }
    assert {flow: gpt2[flow].elements - llama[flow].elements for flow in expected} == expected
    biases = 2 * 2 * (into + out)
    wide = gpt2["tensor_depth", "all_reduce"]
    assert wide.bytes == 4 * wide.elements - 2 * biases  # those of biases in bf16


def test_with_more_than_two_replicas_reduced_gradients_by_hand() -> None:
    """In fp32, of two layers. Along the depth all norms and biases; along the row biases into a block; along the column the others."""
    gpt2 = {"family": "gpt2", "layers": 2, "dim": 32, "heads": 4, "hidden": 64}
    two, four = (traffic(_setting(gpt2, {"data": count, "micro_batch": 16 // count})).moved for count in (2, 4))
    into, others = 2 * (3 * 32 + 64) / 2, (2 * (4 + 2) + 2) * 32 / 2
    lines = {"depth": into + others, "row": into, "column": others}
    expected = {(f"tensor_{line}", "broadcast"): (held / 2, 4 * held / 2) for line, held in lines.items()}
    assert {flow: (one.elements, one.bytes) for flow, one in four.items() if flow[1] == "broadcast"} == expected
    assert not [flow for flow in two if flow[1] == "broadcast"]


def test_norms_of_heads_by_hand() -> None:
    """Of queries and keys, 64 numbers each, along all three lines."""
    norms, plain = (traffic(_setting({"preset": name, "layers": 3}, {})).moved for name in ("qwen3-nano", "nano"))
    for axis in ("tensor_depth", "tensor_row", "tensor_column"):
        more = norms[axis, "all_reduce"].elements - plain[axis, "all_reduce"].elements
        assert more == 2 * 3 * 2 * 64


def test_a_pipelines_first_rank_sends_for_its_own_stages() -> None:
    """Of as many blocks ZBV's first rank has the head beside. It and one block run backward in two halves.

    Both halves of their norms send all, and both halves of products gather the gradients of outputs.
    """
    model = {"layers": 4, "dim": 32, "heads": 4, "kv_heads": 4, "hidden": 64}
    halves, both_ends = (
        traffic(_setting(model, {"pipeline": {"stages": 2, "blocks": blocks}, "schedule": schedule}))
        for blocks, schedule in (([2, 2], "1f1b"), ([1, 1, 1, 1], "zbv"))
    )
    assert not halves.unknown and not both_ends.unknown
    tokens, table, own = 2 * 8 * 16 / 4, 2 * 256 * 32 / 8, 32 / 2
    expected = {
        ("tensor_depth", "all_gather"): 2 * table,
        ("tensor_depth", "reduce_scatter"): table,
        ("tensor_depth", "all_reduce"): 2 * (1 + 3) * own,
        ("tensor_row", "all_gather"): (2 * 256 + 3 * 32 + 2 * 64) / 2 * tokens,
        ("tensor_row", "reduce_scatter"): 256 / 2 * tokens,
        ("tensor_row", "all_reduce"): (2 + 3) * 2 * tokens / 2,
        ("tensor_column", "all_gather"): (2 + 2) * own * tokens,
        ("tensor_column", "reduce_scatter"): own * tokens,
        ("tensor_column", "all_reduce"): 2 * (1 + 3) * own + 3 * 2 * tokens / 2,
    }
    assert {flow: both_ends.moved[flow].elements - halves.moved[flow].elements for flow in expected} == expected


@pytest.mark.parametrize(
    ("tensor", "sent"),
    [
        # of 2 · 32 + 1 norms a rank has 8192/l elements, once along the depth and once along the columns
        (_shape("3d", 4, 4, 4), 2 * 65 * 2048 * 3 / 4),
        (_shape("3d", 2, 2, 2), 0),
        (64, 0),
    ],
)
def test_the_gradients_of_what_several_lines_hold_are_sent_where_a_sum_has_an_order(
    tensor: object, sent: float
) -> None:
    """Also of one replica: they are added up along one line after the other."""
    moved = _traffic(tensor, 2048).moved
    assert sum(one.elements for (_, kind), one in moved.items() if kind == "broadcast") == sent
