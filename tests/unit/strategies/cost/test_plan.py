"""The plan of the fullest rank: which moment sets its peak, and what it holds then. (tests/dry compares plans with dry runs.)"""

from dataclasses import replace
from typing import Any

import pytest

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.plan import Plan, plan
from shardyard.strategies.memory_options import OFFLOAD_BUCKET_BYTES
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec

from .test_estimate import setting


def of(layout: dict[str, Any], **train: Any) -> Plan:
    found = setting(layout, **{"precision": "bf16", **train})
    assert isinstance(found, Setting)
    return plan(found)


#: So few tokens that the state alone decides.
TINY: dict[str, Any] = {"data": {"seq_len": 2}, "global_batch": 4, "model": {"preset": "micro"}}


@pytest.mark.parametrize(("gradients", "each"), [("fp32", 18), ("compute", 20)])
def test_replicas_peak_at_18_or_20_bytes_per_parameter(gradients: str, each: int) -> None:
    found = of({"data": 2}, **{**TINY, "precision": {"compute": "bf16", "gradients": gradients}})
    parameters = found.by_kind["parameters"] / 2
    assert found.moment == "reduced" or gradients == "fp32"
    assert found.peak == pytest.approx(each * parameters, rel=0.02)


@pytest.mark.parametrize(("precision", "each"), [("bf16", 2), ("fp32", 4)])
def test_a_table_that_is_embedding_and_head_has_three_gradients_at_the_end(precision: str, each: int) -> None:
    """Its head's, its embedding's and their sum, in the compute dtype, beside the sums of all micro-batches."""
    model = {"preset": "nano", "dim": 128, "vocab": 30_000, "tied": True}
    found = of({"data": 2, "zero": 1, "micro_batch": 1}, **{**TINY, "model": model, "precision": precision})
    assert found.moment == "backward" and "activations" not in found.by_kind
    parameters = found.by_kind["parameters"] / each
    assert found.by_kind["gradients"] == 4 * parameters + 3 * each * 30_000 * 128


def test_recompute_and_smaller_micro_batches_need_less() -> None:
    peaks = [of({"data": 2}, recompute=mode).peak for mode in ("none", "selective", "full")]
    assert peaks == sorted(peaks, reverse=True)
    assert of({"data": 2, "micro_batch": 1}).peak < of({"data": 2}).peak


def test_each_stage_of_zero_needs_less_of_a_state() -> None:
    peaks = [of({"data": 4, "zero": stage, "micro_batch": 1}, model={"preset": "micro"}).peak for stage in range(4)]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize(("layout", "received"), [({"data": 2}, 0), ({"data": 2, "zero": 1}, 2)])
def test_gloo_receives_the_buckets_in_transit_in_memory_of_their_own(layout: dict[str, Any], received: int) -> None:
    found = of(layout, precision="fp32", overlap={"prefetch": 2, "bucket_mb": 1}, **TINY)
    assert found.moment != "loss"
    assert found.by_kind.get("buffers", 0) == received * 2**20


def test_offloaded_state_is_on_the_host() -> None:
    here, there = of({"data": 2}), of({"data": 2}, offload={"optimizer": 1})
    assert "optimizer" in here.by_kind and "optimizer" not in there.by_kind
    rows = of({"data": 4, "zero": 1}, offload={"optimizer": 1})  # its chunk of the values, rounded
    assert rows.by_kind["optimizer"] == pytest.approx(rows.by_kind["parameters"] / 4, rel=0.01)
    values = 2 * here.by_kind["parameters"]  # in fp32
    assert values <= OFFLOAD_BUCKET_BYTES
    buffers = 2 * values
    assert there.host["optimizer"] == 3 * values + buffers and "optimizer" not in here.host


def test_offloaded_activations_are_those_of_two_blocks_and_on_the_host_of_all_passes() -> None:
    deep: dict[str, Any] = {"model": {"preset": "nano", "layers": 8}}
    here, there = of({}, **deep), of({}, offload={"activations": True}, **deep)
    assert there.by_kind["activations"] < here.by_kind["activations"] / 3
    one, two = (
        of(layout, offload={"activations": True}, global_batch=4, **deep)
        for layout in ({"micro_batch": 1}, {"pipeline": 2, "schedule": "gpipe", "micro_batch": 1})
    )
    assert two.host["activations"] == 2 * one.host["activations"]  # half of the blocks, four passes in flight
    # Each stage has memory of its own, on the last rank for three passes and for one; it never holds more than three at once.
    loop = {"pipeline": 2, "schedule": "interleaved", "micro_batch": 1}
    whole = of(loop, offload={"activations": True}, global_batch=4, **deep).host["activations"]
    assert whole == (3 + 1) * 2 * one.host["activations"] / 8


@pytest.mark.parametrize("layout", [{"data": 2}, {"data": 2, "zero": 1}, {"data": 4, "shard": 2, "zero": 3}], ids=str)
def test_replicas_share_two_copies_of_their_state_on_the_host(layout: Any) -> None:
    parameters = of({}, model={"preset": "micro"}).by_kind["parameters"] / 2
    found = of(layout, model={"preset": "micro"}).host["snapshots"]
    assert found == pytest.approx(2 * 12 * parameters / layout["data"], rel=0.01)


def test_the_largest_tensor_bounds_what_many_replicas_share() -> None:
    """A tensor is in one replica's snapshots."""
    model = {"preset": "micro", "vocab": 256000}
    largest = 4 * 256000 * 256
    assert of({"data": 16}, model=model).host["snapshots"] == 2 * largest


def test_without_snapshots_none_are_planned() -> None:
    assert "snapshots" not in of({"data": 2}, snapshot={"every": 0}).host


def test_the_fullest_place_of_a_pipeline_decides() -> None:
    """GPipe's last rank holds the logits of all micro-batches."""
    found = of({"pipeline": 2, "schedule": "gpipe", "micro_batch": 1}, model={"preset": "nano", "vocab": 32000})
    assert found.by_kind["logits"] > found.by_kind["activations"]


def test_blocks_of_a_rank_count_by_the_passes_through_their_own_stage() -> None:
    """ZBV's first rank has four passes of its first stage in flight, and none of its last one."""
    model = {"preset": "nano", "layers": 12}
    early, late = (
        of({"pipeline": {"stages": 2, "blocks": blocks}, "schedule": "zbv", "micro_batch": 1}, model=model)
        for blocks in ([8, 1, 1, 2], [2, 1, 1, 8])
    )
    assert early.by_kind["activations"] > 2 * late.by_kind["activations"]


def test_an_estimate_says_so() -> None:
    assert "compiled" in " ".join(of({}, compile=True).notes)
    assert of({}).notes == ()


def test_a_plan_of_a_split_by_profile_says_that_its_stages_are_those_of_flops() -> None:
    plain = setting({"pipeline": 2})
    assert isinstance(plain, Setting)
    profiled = replace(plain, layout=plain.layout.with_(pipeline_split="profile"))
    assert plan(profiled).by_kind == plan(plain).by_kind
    (note,) = plan(profiled).notes
    assert "those of FLOPs" in note and plan(plain).notes == ()


@pytest.mark.parametrize(("given", "each"), [({}, 2.0), ({"weights": "int8", "block": 64}, 1 + 4 / 64)])
def test_a_secondary_shard_is_among_the_parameters(given: dict[str, Any], each: float) -> None:
    """cΨ/S; in 8 bits a byte per number and 4 per block."""
    layout: dict[str, Any] = {"data": 8, "zero": 3, "micro_batch": 1}
    more: dict[str, Any] = {"model": {"preset": "micro"}}
    without = of(layout, **more)
    found = of({**layout, "zero_plus_plus": {"secondary": 4, **given}}, **more)
    psi = 8 * without.by_kind["parameters"] / 4
    added = found.by_kind["parameters"] - without.by_kind["parameters"]
    assert added == pytest.approx(each * psi / 4, rel=0.01)


def test_quantised_gradients_are_received_in_memory_of_their_own_on_gpus_too() -> None:
    spec = {"steps": 1, "global_batch": 16, "precision": "bf16", "layout": {"data": 4, "zero": 1}}
    layout = {"data": 4, "zero": 1, "zero_plus_plus": {"gradients": "int8"}}
    plain, quantised = (
        setting_of(TrainSpec.model_validate({**spec, "layout": one}), 256, "cuda") for one in (spec["layout"], layout)
    )
    assert isinstance(plain, Setting) and isinstance(quantised, Setting)
    assert plan(quantised).peak > plan(plain).peak
