"""Bytes per step equal the formulas, exactly: 2Ψ(N−1)/N elements for ZeRO-0, 1 and 2, 3Ψ(N−1)/N for ZeRO-3 (1910.02054, section 7).

Every other axis: with B rows of s tokens on a replica, width d, L blocks, n = B·s·d elements of hidden state and f = (t−1)/t:

- tensor: a block all-reduces its two outputs forward and their inputs' gradients backward, 4 times 2nf; the head its input's gradient,
  2nf. The embedding is cut by columns: its output is gathered, nf, and each rank takes its own columns of the gradient. The loss
  all-reduces 1 and then 2 numbers per token, 3·2·B·s·f.
- with sequence parallelism a block gathers its two inputs forward, again backward, and its two outputs' gradients, 6nf, and reduce-scatters
  its outputs and its inputs' gradients, 4nf; the head gathers twice and reduce-scatters once; the embedding's output is gathered (gloo has
  no all-to-all between shards), and so is its gradient. Norms see a part of the tokens: 2L + 1 gradients of d are all-reduced.
- Ulysses: U ranks exchange q, k, v and the output, n = B·s/C·head size·(2·heads + 2·key heads), forward and backward: 2nf per block.
- ring: R ranks pass keys and values, n = B·s/C·head size·key heads each, R − 1 times forward (2n), and backward with their gradients (4n).
  A double ring's W windows send W − 1 of these R − 1 messages to each other. An all-gather and a reduce-scatter send the same elements.
- with more than two replicas the first tensor rank sends the gradients of norms and routers, n(t−1)/t of the n that a rank has after ZeRO.
- experts: rows go to their experts and back, forward and backward; all that leave a rank, 4·k·B·s·d·(E−1)/E with every expert chosen.
- pipeline: each boundary between ranks carries n forward and n back.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import LLAMA
from harness.ranks import train

Make = Callable[..., Any]


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


def test_a_recomputed_block_is_gathered_twice_and_reduced_once(root: Path, make_spec: Make) -> None:
    """As BMTrain describes its blocks with zero_level 3 and checkpointing; what is beside the blocks is one more."""
    found, psi = probe({"data": 2, "zero": 3}, root, make_spec, recompute="full", overlap={"prefetch": 1})
    kinds, parts = found["traffic"]["data"], LLAMA["layers"] + 1
    assert {name: kind["calls"] for name, kind in kinds.items()} == {"all_gather": 2 * parts, "reduce_scatter": parts}
    assert {name: kind["elements"] for name, kind in kinds.items()} == {"all_gather": psi, "reduce_scatter": psi / 2}


@pytest.mark.parametrize(
    ("stage", "gradients", "size"), [(1, "fp32", 4), (1, "compute", 2), (2, "fp32", 2), (0, "fp32", 4)]
)
def test_half_precision_halves_bytes(stage: int, gradients: str, size: int, root: Path, make_spec: Make) -> None:
    """But of sums in fp32; stage 2 sends one micro-batch's gradients, which are no sums yet."""
    precision = {"compute": "bf16", "gradients": gradients}
    found, psi = probe({"data": 2, "zero": stage}, root, make_spec, precision=precision)
    other = 2 if stage else size  # values that are gathered; the second half of an all-reduce
    assert moved(found) == (2 * psi / 2, (size + other) * psi / 2)


def test_groups_that_shard_move_less_between_them(root: Path, make_spec: Make) -> None:
    found, psi = probe({"data": 4, "zero": 3, "shard": 2}, root, make_spec)
    assert moved(found, "shard")[0] == 3 * psi / 2
    assert moved(found, "shard_replica")[0] == 2 * (psi / 2) / 2


@pytest.mark.parametrize(("ranks", "size", "expert"), [(4, 2, 2), (8, 4, 2)])
def test_groups_that_shard_cut_experts_over_what_is_left(
    ranks: int, size: int, expert: int, root: Path, make_spec: Make
) -> None:
    """An expert has `alike` of its ranks ÷ expert replicas in a group, which cut it; the `others` of them are in other groups."""
    model = {**LLAMA, "family": "moe", "experts": 4, "top_k": 2}
    run = train(
        make_spec({"data": ranks, "zero": 3, "shard": size, "expert": expert}, steps=2, eval={}, model=model), root
    )
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    spread = sum(value.size for name, value in run["parameters"].items() if ".experts." in name)
    dense = sum(value.size for value in run["parameters"].values()) - spread
    groups, alike = ranks // size, max(1, size // expert)
    others = ranks // expert // alike
    inside = 3 * dense * (size - 1) / size + 3 * spread / expert * (alike - 1) / alike
    between = 2 * dense / size * (groups - 1) / groups + 2 * spread / expert / alike * (others - 1) / others
    assert anywhere(found, "all_gather") + anywhere(found, "reduce_scatter") == inside
    assert anywhere(found, "all_reduce") == between


#: Of the small job: rows, tokens per row, width, blocks, head size, heads, key heads.
B, S, D, L, HEAD, HEADS, KEYS = 16, 32, 32, 4, 8, 4, 2
N = B * S * D


def elements(found: Any, axis: str, of: str = "traffic") -> dict[str, float]:
    return {kind: numbers["elements"] for kind, numbers in found[of].get(axis, {}).items()}


def anywhere(found: Any, kind: str, of: str = "traffic") -> float:
    """Elements of one kind of collective on all axes: axes of the same ranks share a group, and count under one name."""
    return sum(kinds[kind]["elements"] for kinds in found[of].values() if kind in kinds)


@pytest.mark.parametrize("t", [2, 4])
@pytest.mark.parametrize("micro_batch", [None, 4])
def test_tensor(t: int, micro_batch: int | None, root: Path, make_spec: Make) -> None:
    model = {**LLAMA, "kv_heads": 4}
    found, _ = probe({"tensor": t, "sequence": False, "micro_batch": micro_batch}, root, make_spec, model=model)
    f = (t - 1) / t
    reduced = (L * 4 + 1) * 2 * N * f + 3 * 2 * B * S * f
    assert elements(found, "tensor") == {"all_reduce": reduced, "all_gather": N * f}


@pytest.mark.parametrize("layout", [{"tensor": 4}, {"tensor": 2, "sequence": False}], ids=["sequence", "whole"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_chunks_over_the_tensor_axis_send_nothing_more(
    recompute: str, layout: dict[str, Any], root: Path, make_spec: Make
) -> None:
    """Full recompute among them, whose second pass of a block ends before its last reduction."""
    model = {**LLAMA, "kv_heads": 4}
    plain, chunked = (
        probe(layout, root, make_spec, model=model, recompute=recompute, overlap={"tensor_chunks": chunks})[0]
        for chunks in (1, 3)
    )
    assert elements(chunked, "tensor") == elements(plain, "tensor")


@pytest.mark.parametrize("t", [2, 4])
@pytest.mark.parametrize("micro_batch", [None, 4])
def test_tensor_and_sequence(t: int, micro_batch: int | None, root: Path, make_spec: Make) -> None:
    model = {**LLAMA, "kv_heads": 4}
    found, _ = probe({"tensor": t, "micro_batch": micro_batch}, root, make_spec, model=model)
    f = (t - 1) / t
    assert elements(found, "tensor") == {
        "all_gather": (6 * L + 2 + 2) * N * f,
        "reduce_scatter": (4 * L + 1) * N * f,
        "all_reduce": 3 * 2 * B * S * f + (2 * L + 1) * 2 * D * f,
    }


def test_recompute_sends_again_what_selective_recompute_keeps(root: Path, make_spec: Make) -> None:
    """A block's second pass ends before its last reduction, and gathers two inputs and reduces one output before: 3nf."""
    none, selective, full = (
        probe({"tensor": 2}, root, make_spec, recompute=mode)[0] for mode in ("none", "selective", "full")
    )
    assert selective["traffic"] == none["traffic"]
    more = {kind: count - elements(none, "tensor")[kind] for kind, count in elements(full, "tensor").items()}
    assert more == {"all_gather": 2 * L * N / 2, "reduce_scatter": L * N / 2, "all_reduce": 0}


@pytest.mark.parametrize("schedule", ["zbv", "interleaved-zb", "zb-h1", "zb-h2", "dualpipev"])
def test_halved_backward_passes_send_nothing_twice(schedule: str, root: Path, make_spec: Make) -> None:
    layout = {"tensor": 2, "pipeline": 2}
    whole, _ = probe({**layout, "schedule": "interleaved"}, root, make_spec)
    halves, _ = probe({**layout, "schedule": schedule}, root, make_spec)
    assert elements(halves, "tensor", "traffic_sum") == elements(whole, "tensor", "traffic_sum")


def test_ulysses(root: Path, make_spec: Make) -> None:
    found, psi = probe({"context": 2, "ulysses": 2}, root, make_spec)
    n = B * S // 2 * HEAD * (2 * HEADS + 2 * KEYS)
    assert anywhere(found, "all_to_all") == L * 2 * n / 2
    assert anywhere(found, "all_reduce") == 2 * psi / 2


@pytest.mark.parametrize("method", ["ring", "ring-self-attention"])
@pytest.mark.parametrize("ring", [2, 4])
def test_ring(ring: int, method: str, root: Path, make_spec: Make) -> None:
    found, _ = probe({"context": ring, "context_method": method}, root, make_spec)
    n = B * S // ring * HEAD * KEYS
    assert anywhere(found, "send") == L * (2 * n + 4 * n) * (ring - 1)


def test_ring_of_ulysses(root: Path, make_spec: Make) -> None:
    found, _ = probe({"context": 4, "ulysses": 2}, root, make_spec)
    local = B * S // 4 * HEAD
    assert anywhere(found, "all_to_all") == L * 2 * local * (2 * HEADS + 2 * KEYS) / 2
    assert anywhere(found, "send") == L * 6 * local * KEYS


def test_ulysses_sends_copies_of_key_heads(root: Path, make_spec: Make) -> None:
    found, _ = probe({"context": 4, "ulysses": 4}, root, make_spec)  # two key heads for four ranks
    n = B * S // 4 * HEAD * (2 * HEADS + 2 * 2 * KEYS)
    assert anywhere(found, "all_to_all") == L * 2 * n * 3 / 4


def test_a_double_ring_sends_less_between_windows(root: Path, make_spec: Make) -> None:
    found, _ = probe({"context": 4, "ring_window": 2}, root, make_spec)
    n = B * S // 4 * HEAD * KEYS
    assert elements(found, "inner_ring") == {"send": L * 6 * n * 2}
    assert elements(found, "outer_ring") == {"send": L * 6 * n}


def test_an_all_gather_sends_what_a_ring_sends(root: Path, make_spec: Make) -> None:
    found, psi = probe({"context": 2, "context_method": "all-gather"}, root, make_spec)
    n = B * S // 2 * HEAD * KEYS
    assert anywhere(found, "all_gather") == L * 4 * n
    assert anywhere(found, "reduce_scatter") == L * 2 * n
    assert anywhere(found, "all_reduce") == 2 * psi / 2


@pytest.mark.parametrize("ranks", [2, 4])
def test_experts(ranks: int, root: Path, make_spec: Make) -> None:
    """All experts are chosen for each token, so that the routing does not matter; the row counts are one integer per expert."""
    model = {**LLAMA, "family": "moe", "experts": 4, "top_k": 4}
    found, _ = probe({"data": ranks, "expert": ranks}, root, make_spec, model=model)
    tokens, f = B * S // ranks, (ranks - 1) / ranks
    assert anywhere(found, "all_to_all") == L * (4 * 4 * tokens * D + 4) * f


def test_experts_that_some_choose(root: Path, make_spec: Make) -> None:
    """Uneven: what leaves for the experts comes back, so all ranks' dispatches are all ranks' returns, forward and backward alike."""
    model = {**LLAMA, "family": "moe", "experts": 4, "top_k": 1}
    found, _ = probe({"data": 2, "expert": 2}, root, make_spec, model=model)
    rows = anywhere(found, "all_to_all", "traffic_sum") - L * 2 * 4 / 2  # less the row counts
    assert rows % (4 * D) == 0
    assert 0 < rows <= 4 * L * B * S * D


BOUNDARIES = {
    "1f1b": (4, 3),
    "gpipe": (2, 1),
    "interleaved": (2, 3),
    "zb-h1": (4, 3),
    "zbv": (2, 2),
    "dualpipev": (2, 2),
}


@pytest.mark.parametrize("schedule", BOUNDARIES)
def test_a_pipeline_sends_hidden_states_and_gradients_over_every_boundary(
    schedule: str, root: Path, make_spec: Make
) -> None:
    """V schedules have both stages of their turn on one rank: 2p stages, 2p − 2 boundaries between ranks."""
    ranks, boundaries = BOUNDARIES[schedule]
    found, _ = probe({"pipeline": ranks, "schedule": schedule}, root, make_spec)
    assert elements(found, "pipeline", "traffic_sum") == {"send": boundaries * 2 * N}


def test_a_pipeline_of_sequence_parallel_stages_sends_every_token_once(root: Path, make_spec: Make) -> None:
    found, _ = probe({"pipeline": 2, "tensor": 2}, root, make_spec)
    assert elements(found, "pipeline", "traffic_sum") == {"send": 2 * N}
    assert elements(found, "pipeline") == {"send": N / 2}


@pytest.mark.parametrize(("zero", "times"), [(1, 2), (3, 3)])
def test_tensor_ranks_move_their_own_cut(zero: int, times: int, root: Path, make_spec: Make) -> None:
    """All matrices are cut by t, the 2L + 1 norms are not. (Stage 3 gathers for one micro-batch.)"""
    layout = {"data": 2, "tensor": 2, "zero": zero}
    found, psi = probe(layout, root, make_spec)
    norms = (2 * L + 1) * D
    assert moved(found)[0] == times * ((psi - norms) / 2 + norms) / 2


#: Layout, and elements of a norm that a rank sends: 0 where no more than two gradients are added up at a time.
WHOLE = [
    ({"data": 3, "zero": 1}, 11),
    ({"data": 2, "zero": 1}, 0),
    ({"data": 4}, D),
    ({"data": 4, "zero": 2, "micro_batch": 1}, D // 4),
    ({"data": 4, "zero": 3, "micro_batch": 1}, D // 4),
    ({"data": 4, "zero": 3, "shard": 2}, 0),
    ({"data": 2, "context": 2, "zero": 1}, D // 4),
]


@pytest.mark.parametrize(("layout", "of_a_norm"), WHOLE, ids=str)
def test_tensor_ranks_send_the_gradients_of_norms_once_a_step(
    layout: dict[str, Any], of_a_norm: int, root: Path, make_spec: Make
) -> None:
    found, _ = probe({**layout, "tensor": 2}, root, make_spec)
    assert elements(found, "tensor").get("broadcast", 0) == (2 * L + 1) * of_a_norm / 2


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_tensor_ranks_send_the_gradients_of_routers_as_the_optimizer_reads_them(
    precision: str, root: Path, make_spec: Make
) -> None:
    model = {**LLAMA, "family": "moe", "experts": 4, "top_k": 2}
    found, _ = probe({"data": 4, "expert": 2, "tensor": 2}, root, make_spec, model=model, precision=precision)
    sent = (2 * L + 1) * D + L * 4 * D
    assert found["traffic"]["tensor"]["broadcast"] == {"calls": 1, "elements": sent / 2, "bytes": 4 * sent / 2}


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_stages_of_a_pipeline_move_their_own_blocks(zero: int, root: Path, make_spec: Make) -> None:
    found, psi = probe({"data": 2, "pipeline": 2, "zero": zero}, root, make_spec)
    assert sum(elements(found, "data", "traffic_sum").values()) == 2 * (2 * psi / 2)


@pytest.mark.parametrize(("schedule", "tied"), [("zbv", True), ("1f1b", False)])
def test_stages_stay_gathered_in_stage_3_and_gather_a_tied_embedding_for_both_ends(
    schedule: str, tied: bool, root: Path, make_spec: Make
) -> None:
    """Gathered once and reduced once a step."""
    layout = {"data": 2, "pipeline": 2, "zero": 3, "schedule": schedule}
    found, psi = probe(layout, root, make_spec, model={**LLAMA, "tied": tied})
    twice = 256 * D if tied else 0
    assert sum(elements(found, "data", "traffic_sum").values()) == 2 * (2 * (psi + twice) / 2)


@pytest.mark.parametrize(("zero", "times"), [(1, 2), (0, 2), (3, 3), (2, 2)])
def test_what_three_ranks_do_not_divide_is_padded_to_equal_rows(
    zero: int, times: int, root: Path, make_spec: Make
) -> None:
    """From stage 1 on each parameter is cut by its rows: 3·⌈rows/3⌉ of them travel."""
    run = train(make_spec({"data": 3, "zero": zero}, steps=2, eval={"batches": 1}), root)
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    shapes = [value.shape for value in run["parameters"].values()]
    rows = 3 if zero else 1
    sent = sum(rows * -(-shape[0] // rows) * math.prod(shape[1:]) for shape in shapes)
    assert moved(found)[0] == pytest.approx(times * sent * 2 / 3, rel=1e-12)  # thirds are rounded
