"""A step's time, against the formulas that the papers print for it."""

from dataclasses import replace
from typing import Any

import pytest

from shardyard.strategies.advisor.hardware import Hardware, Link
from shardyard.strategies.advisor.step_time import StepTime, passes_of, step_time
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.spec import TrainSpec

FREE = Link(float("inf"), 0.0)
#: 156 TFLOP/s, and nothing else takes time.
IDEAL = Hardware(
    device="cuda",
    flops=156e12,
    memory=None,
    memory_bandwidth=float("inf"),
    host=float("inf"),
    ranks_per_node=8,
    intra=FREE,
    inter=FREE,
    block_s=0.0,
    hidden=0.0,
)
#: Megatron's GPT of 1.7B parameters (2104.04473, table 1).
H, L, S, V, B = 2304, 24, 2048, 51200, 64
MODES = ("none", "selective", "full")
SIZES = {"layers": L, "dim": H, "heads": 24, "kv_heads": 24, "hidden": 4 * H, "vocab": V, "tied": False}


def setting(layout: dict[str, Any], **train: Any) -> Setting:
    fields = {"model": {"family": "gpt2", "preset": "1.3B", **SIZES}, "data": {"seq_len": S}, "precision": "bf16"}
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": B, **fields, "layout": layout, **train})
    architecture = spec.architecture(V)
    assert architecture is not None
    return planned_setting(spec, architecture, "cuda")


def timed(layout: dict[str, Any], hardware: Hardware = IDEAL, **train: Any) -> StepTime:
    return step_time(setting(layout, **train), hardware)


@pytest.mark.parametrize(
    "layout", [{}, {"data": 4}, {"tensor": 8}, {"data": 2, "tensor": 2, "context": 2, "zero": 1}], ids=str
)
@pytest.mark.parametrize(("recompute", "factor", "head"), [("full", 96, 16), ("none", 72, 12)])
def test_the_passes_are_megatrons_flops(layout: dict[str, Any], recompute: str, factor: int, head: int) -> None:
    """F = 96BslH²(1 + s/6H + V/16lH) with recompute (2104.04473, equation 3); 72 and 12 without."""
    flops = factor * B * S * L * H**2 * (1 + S / (6 * H) + V / (head * L * H))
    ranks = TrainSpec.model_validate({"steps": 1, "global_batch": B, "layout": layout}).layout.world_size
    found = timed(layout, recompute=recompute)
    assert found.seconds == pytest.approx(flops / ranks / IDEAL.flops, rel=1e-9)
    assert found.communication == found.optimizer == found.passes.bubble == 0


@pytest.mark.parametrize(("schedule", "part"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_the_bubble_is_megatrons(schedule: str, part: int) -> None:
    """(p − 1)/m of the time without it, over v when interleaved (2104.04473, section 2.2)."""
    found = timed({"pipeline": 4, "schedule": schedule, "micro_batch": 4})
    assert found.passes.bubble / found.passes.compute == pytest.approx(3 / 16 / part)


def test_a_step_of_pipedream_is_a_forward_pass_and_a_backward_pass_for_each_rank() -> None:
    """F + 4(I + W) = 9 thirds of what a rank computes."""
    found = timed({"pipeline": 4, "schedule": "pipedream"})
    assert found.passes.seconds == pytest.approx(9 / 3 * found.passes.compute)


@pytest.mark.parametrize(("tied", "thirds"), [(False, 3), (True, 9)])
def test_without_clipping_pipedream_has_no_bubble_unless_both_ends_share_a_weight(tied: bool, thirds: int) -> None:
    model = {"family": "gpt2", "preset": "1.3B", **SIZES, "tied": tied}
    found = timed({"pipeline": 4, "schedule": "pipedream"}, model=model, optimizer={"clip_norm": None})
    assert found.passes.seconds == pytest.approx(thirds / 3 * found.passes.compute)


@pytest.mark.parametrize(("tied", "clip_norm", "thirds"), [(False, None, 0), (True, None, 6), (True, 1.0, 0)])
def test_2bw_has_a_bubble_where_its_ranks_end_a_step_apart_and_both_ends_share_a_weight(
    tied: bool, clip_norm: float | None, thirds: int
) -> None:
    """Of p − 1 backward passes. With clipping this number of micro-batches leaves none."""
    model = {"family": "gpt2", "preset": "1.3B", **SIZES, "tied": tied}
    found = timed({"pipeline": 4, "schedule": "2bw", "micro_batch": 8}, model=model, optimizer={"clip_norm": clip_norm})
    assert found.passes.bubble == pytest.approx(thirds / 3 * found.passes.compute / 8)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("mode", ["full", "selective", "every-2"])
def test_each_half_of_a_split_backward_pass_computes_again(schedule: str, mode: str) -> None:
    found = timed({"pipeline": 4, "schedule": schedule, "micro_batch": 4}, recompute=mode)
    once = timed({"pipeline": 4, "micro_batch": 4}, recompute=mode).passes.recompute
    assert found.passes.recompute == pytest.approx(once * (2 if schedule == "zb-h1" else 1))


#: Two experts of 8 for each token.
MIXTURE = {"family": "moe", "preset": "nano", "dim": 64, "heads": 4, "kv_heads": 4, "hidden": 128, "layers": 2}
MIXTURE |= {"vocab": 256, "experts": 8, "top_k": 2}


def test_experts_with_a_capacity_send_and_multiply_buffers_of_fixed_size() -> None:
    """Each of 8 experts has twice the rows of an even distribution, and of these each of 2 ranks sends the other half of them."""
    link = replace(IDEAL, intra=Link(1e9, 0.0), inter=Link(1e9, 0.0))
    layout = {"data": 2, "expert": 2, "micro_batch": 1}
    even, fixed = (timed(layout, link, model={**MIXTURE, **more}).passes for more in ({}, {"capacity_factor": 2.0}))
    assert even.sent["expert"] == pytest.approx(4 * 2 * (B // 2) * S * 64 * 2 * 2 / 2 / 1e9)
    assert fixed.sent["expert"] == pytest.approx(2 * even.sent["expert"])
    assert fixed.compute - even.compute == pytest.approx(B // 2 * S * EXPERTS / 156e12)


#: FLOPs per token of the experts of both blocks, forward and backward: three matrices of 64 × 128 for each of two.
EXPERTS = 2 * 6 * 2 * 3 * 64 * 128


def test_selective_recompute_multiplies_experts_again_and_exchanges_their_tokens_again() -> None:
    """Their product is one operator, which is not kept; nor are exchanges that write into a buffer."""
    link = replace(IDEAL, intra=Link(1e9, 0.0), inter=Link(1e9, 0.0))
    layout = {"data": 2, "expert": 2, "micro_batch": 1}
    none, selective, full = (timed(layout, link, model=MIXTURE, recompute=mode).passes for mode in MODES)
    again = B // 2 * S * EXPERTS / 3 / 156e12
    assert selective.recompute == pytest.approx(again + 0.1 * (full.recompute - again))
    assert selective.sent["expert"] == full.sent["expert"] == pytest.approx(1.5 * none.sent["expert"])
    half = timed(layout, link, model=MIXTURE, recompute="every-2").passes
    assert half.sent["expert"] == pytest.approx(1.25 * none.sent["expert"])
    on_cpus = timed({"data": 2}, replace(IDEAL, device="cpu"), model=MIXTURE, recompute="selective", precision="fp32")
    dense = timed({"data": 2}, recompute="selective")
    assert dense.passes.recompute < 0.2 * timed({"data": 2}, recompute="full").passes.recompute
    assert on_cpus.passes.recompute == pytest.approx(0.1 * full.recompute)


def test_each_half_of_a_split_backward_pass_exchanges_experts_tokens_again() -> None:
    link = replace(IDEAL, intra=Link(1e9, 0.0), inter=Link(1e9, 0.0))
    layout = {"pipeline": 2, "data": 2, "expert": 2, "micro_batch": 1, "schedule": "zb-h1"}
    none, selective, full = (timed(layout, link, model=MIXTURE, recompute=mode).passes for mode in MODES)
    assert selective.sent["expert"] == full.sent["expert"] == pytest.approx(2 * none.sent["expert"])
    assert selective.recompute > 2 * EXPERTS / 2 / 3 * B // 2 * S / 156e12


@pytest.mark.parametrize("expert", [1, 2, 8])
@pytest.mark.parametrize("zero", [0, 1])
def test_an_experts_gradients_are_sent_among_its_replicas_alone(expert: int, zero: int) -> None:
    """8 replicas, of which 8/E have the same experts: 2Ψ(N − 1)/N elements of them and of what all have."""
    slow = replace(IDEAL, intra=Link(1e9, 0.0))
    experts, others = (held(expert, spread) for spread in (expert, 1))
    if expert == 1:
        others = 0
    found = timed({"data": 8, "expert": expert, "zero": zero}, slow, model=MIXTURE)
    parts = others * 7 / 8 + experts * (8 // expert - 1) / (8 // expert)
    assert found.data == pytest.approx(parts * (6 if zero else 8) / 1e9, rel=0.01)


def held(expert: int, spread: int) -> int:
    """Elements of the parameters with this `spread` that a rank holds."""
    found = setting({"data": 8, "expert": expert}, model=MIXTURE)
    return sum(weight.elements for weight in found.decoder.held(found.layout, 0) if weight.spread == spread)


def test_tensor_parallelism_sends_megatrons_bytes() -> None:
    """l · 8bsH(t − 1)/t elements per micro-batch (2104.04473, section 3.2); the head, loss and embedding are little beside them."""
    slow = replace(IDEAL, intra=Link(1e9, 0.0))
    found = timed({"tensor": 8, "sequence": False, "micro_batch": 8}, slow)
    assert found.passes.sent["tensor"] == pytest.approx(L * 8 * B * S * H * 7 / 8 * 2 / 1e9, rel=0.08)


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 8), (1, 6), (2, 6)])
def test_replicas_send_twice_their_parameters(zero: int, bytes_each: int) -> None:
    """2Ψ(N − 1)/N elements (1910.02054, section 7): gradients in fp32, values in bf16."""
    slow = replace(IDEAL, intra=Link(1e9, 0.0))
    architecture = TrainSpec.model_validate(
        {"steps": 1, "global_batch": B, "model": {"family": "gpt2", "preset": "1.3B", **SIZES}, "data": {"seq_len": S}}
    ).architecture(V)
    assert architecture is not None
    found = timed({"data": 8, "zero": zero}, slow)
    assert found.data == pytest.approx(architecture.parameters * 7 / 8 * bytes_each / 1e9, rel=1e-3)


def test_computing_hides_messages_but_for_the_last_bucket() -> None:
    slow = replace(IDEAL, intra=Link(50e9, 0.0))
    whole, hidden = timed({"data": 8}, slow), timed({"data": 8}, replace(slow, hidden=1.0))
    backward = whole.passes.compute * 2 / 3
    bucket = 8 * 2**20 / 50e9
    assert whole.data < backward and bucket / 2 < hidden.data <= bucket
    slower = timed({"data": 8}, replace(slow, intra=Link(1e9, 0.0), hidden=0.5))
    assert slower.data == pytest.approx(50 * whole.data - 0.5 * backward)


def test_an_update_reads_and_writes_the_state() -> None:
    """30 bytes per parameter with AdamW in mixed precision: values and two moments in fp32 twice, a gradient, a value in bf16."""
    found = timed({"data": 8}, replace(IDEAL, memory_bandwidth=1e12))
    sharded = timed({"data": 8, "zero": 1}, replace(IDEAL, memory_bandwidth=1e12))
    weights = 12 * L * H**2 + 2 * V * H
    assert found.optimizer == pytest.approx(weights * 30 / 1e12, rel=0.01)
    assert sharded.optimizer == pytest.approx(found.optimizer / 8, rel=0.01)


def test_offloaded_state_moves_over_the_link_to_the_host() -> None:
    hardware = replace(IDEAL, memory_bandwidth=1e12, host=1e10)
    here, there = (timed({"data": 8}, hardware, offload={"optimizer": share}).optimizer for share in (0, 1))
    assert there == pytest.approx(here / 30 * 36 * 100)
    on_disk = timed({"data": 8}, replace(hardware, disk=8e9), offload={"optimizer": 1, "to": "disk"}).optimizer
    assert on_disk == pytest.approx(here / 30 * (12 * 100 + 12 * 1000)), "the ranks of a node share its disk"
    whole = timed({"data": 8, "zero": 3}, hardware).optimizer
    moments = timed(
        {"data": 8, "zero": 3}, replace(hardware, disk=8e9), offload={"optimizer": 1, "to": "disk"}
    ).optimizer
    assert moments == pytest.approx(whole / 30 * (20 * 100 + 8 * 1000)), (
        "where the values are the device's, 8 bytes per element"
    )


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_offloaded_activations_move_to_the_host_and_back(recompute: str) -> None:
    """A recomputed block has its input alone: of this model a sequence of 2,048 tokens with 2,304 elements of 2 bytes in 24 blocks."""
    slow = {host: replace(IDEAL, host=host) for host in (1e9, 1e6, 1e15)}
    here = timed({}, recompute=recompute).passes
    found = {
        host: timed({}, one, recompute=recompute, offload={"activations": True}).passes for host, one in slow.items()
    }
    assert found[1e15].sent["host"] == 0 and found[1e15].seconds == here.seconds
    moved = {host: one.sent["host"] + here.compute + here.recompute for host, one in found.items()}
    assert moved[1e6] == pytest.approx(1000 * moved[1e9])
    whole = 2 * B * S * H * 2 * L / 1e6
    assert moved[1e6] == pytest.approx(whole) if recompute == "full" else moved[1e6] > 10 * whole


@pytest.mark.parametrize(
    ("layout", "axis"), [({"context": 8, "ulysses": 8}, "ulysses"), ({"context": 8}, "ring"), ({"tensor": 8}, "tensor")]
)
def test_messages_of_an_axis_are_those_of_the_axis(layout: dict[str, Any], axis: str) -> None:
    found = timed(layout, replace(IDEAL, intra=Link(1e9, 1e-5)))
    assert set(found.passes.sent) == {axis} and found.passes.sent[axis] > 0


def test_a_ring_is_hidden_by_attention() -> None:
    """Keys and values of 2048/8 tokens take less time than attention over them, but for the messages' own latency."""
    ring = {"context": 8}
    slow = replace(IDEAL, intra=Link(100e9, 0.0))
    assert timed(ring, slow).passes.sent["ring"] > 0
    assert timed(ring, replace(slow, hidden=1.0, flops=1e12)).passes.sent["ring"] == 0


def test_ranks_that_share_a_core_have_no_bubble_while_others_work() -> None:
    """Four stages on two cores: 16 + 3 passes at full speed are shorter than 2 · 16 at half of it."""
    alone, shared = (timed({"pipeline": 4, "micro_batch": 4}, replace(IDEAL, cores=cores)) for cores in (1.0, 0.5))
    assert shared.passes.bubble == 0
    assert shared.passes.compute == pytest.approx(2 * alone.passes.compute)
    few = timed({"pipeline": 4, "schedule": "gpipe", "micro_batch": 64}, replace(IDEAL, cores=0.5))
    assert few.seconds == pytest.approx(4 * few.passes.compute / 2)  # one micro-batch: a rank after the other


@pytest.mark.parametrize(
    "layout",
    [
        {"data": 4, "zero": 3},
        {"pipeline": 4, "data": 2, "zero": 1, "micro_batch": 4},
        {"pipeline": 4, "schedule": "zb-h1", "micro_batch": 4},
        {"tensor": 2, "context": 4, "ulysses": 2, "pipeline": 2, "micro_batch": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_lower_bound_is_one(layout: dict[str, Any], recompute: str) -> None:
    hardware = replace(IDEAL, intra=Link(50e9, 1e-5), inter=Link(10e9, 1e-4), block_s=1e-4, hidden=0.7)
    found = setting(layout, recompute=recompute)
    bound, passes = (passes_of(found, hardware, messages=messages).seconds for messages in (False, True))
    assert 0 < bound <= passes <= step_time(found, hardware).seconds


def test_a_rank_between_two_nodes_sends_to_both_by_one_card() -> None:
    """64 micro-batches, each a message forward and one back; the passes hide what takes no longer than they."""
    slow = replace(IDEAL, ranks_per_node=1, intra=FREE, inter=Link(1e9, 0.0))
    layout = {"pipeline": 4, "micro_batch": 1}
    message = S * H * 2 / 1e9
    found = timed(layout, slow).passes
    assert found.sent["pipeline"] == pytest.approx(2 * 64 * message)
    hidden = timed(layout, replace(slow, hidden=0.25)).passes
    assert hidden.sent["pipeline"] == pytest.approx(2 * 64 * message - 0.25 * found.compute)
    two = timed({"pipeline": 2, "micro_batch": 1}, slow).passes
    assert two.sent["pipeline"] == pytest.approx(64 * message), "either end sends to one side"
    border = timed(layout, replace(slow, ranks_per_node=2)).passes
    assert border.sent["pipeline"] == pytest.approx(64 * message), "the other side is on its own node"
    assert timed(layout, replace(slow, hidden=1.0, inter=Link(1e12, 0.0))).passes.sent["pipeline"] == 0


def test_buckets_of_less_than_a_byte_are_many_calls() -> None:
    found = timed({"data": 8}, overlap={"bucket_mb": 1e-9})
    assert found.seconds >= timed({"data": 8}).seconds
