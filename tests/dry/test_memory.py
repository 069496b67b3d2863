"""Memory on fake devices against the formulas of ZeRO (1910.02054), and extrapolated memory against that of the whole model."""

from typing import Any

import pytest
from harness.dry_run import DryRunner

from shardyard.workers.dry_run.report import DryRun

SHALLOW = {"preset": "nano", "layers": 2}


def phase(report: DryRun, name: str) -> int:
    return next(one.bytes for one in report.phases if one.phase == name)


@pytest.mark.parametrize(("zero", "each", "shared"), [(0, 14, 0), (1, 2, 12), (2, 2, 12), (3, 0, 12)])
def test_state_is_sharded_as_the_stage_says(zero: int, each: int, shared: int, dry: DryRunner) -> None:
    """In bf16 2Ψ bytes of parameters and 12Ψ of optimizer state, give or take padding and the allocator's blocks of 512 bytes."""
    found = dry.report({"data": 4, "zero": zero}, model=SHALLOW)
    assert found.state_bytes == pytest.approx((each + shared / 4) * found.parameters, rel=0.02)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.full), 7])
def test_zero_3_shards_experts_of_which_a_rank_has_one(rank: int, dry: DryRunner) -> None:
    """Four experts over four ranks, each on two replicas: neither of them holds a whole expert."""
    found = dry.report({"data": 8, "expert": 4, "zero": 3}, rank, model={**SHALLOW, "family": "moe"})
    assert found.state_bytes == pytest.approx(12 * found.parameters / 8, rel=0.02)


def test_zero_3_never_holds_the_whole_model(dry: DryRunner) -> None:
    """While it is built: its share of everything, and at most two whole blocks in fp32."""
    shallow, deep = (
        dry.report({"data": 16, "zero": 3}, whole=True, model={"preset": "nano", "layers": layers}) for layers in (1, 6)
    )
    block = 4 * (deep.parameters - shallow.parameters) // 5
    assert phase(deep, "build") <= deep.state_bytes + 2 * block < 4 * deep.parameters


@pytest.mark.full
@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ({"data": 4, "zero": 3, "micro_batch": 1}, {}),
        ({"data": 4, "zero": 3, "micro_batch": 1}, {"overlap": {"prefetch": 1}}),
        ({"data": 4, "zero": 3, "micro_batch": 1}, {"overlap": {"prefetch": 3}, "recompute": "full"}),
        ({"data": 4, "zero": 3, "micro_batch": 1, "zero_plus_plus": {"secondary": 2}}, {}),
        ({"data": 4, "zero": 3, "micro_batch": 1}, {"recompute": "every-2"}),
        ({"data": 4, "zero": 3, "micro_batch": 1}, {"recompute": {"mode": "selective", "every": 3}}),
        ({"data": 2, "zero": 3, "tensor": 2, "micro_batch": 2}, {}),
        ({"data": 2, "zero": 3, "pipeline": 2, "micro_batch": 1}, {}),
        ({"data": 2, "zero": 3, "pipeline": 2, "schedule": "zbv", "micro_batch": 1}, {}),
    ],
    ids=str,
)
def test_a_few_blocks_and_micro_batches_show_what_the_whole_step_needs(
    layout: dict[str, Any], changes: dict[str, Any], dry: DryRunner
) -> None:
    more = {"model": {"preset": "nano", "layers": 10 * layout.get("pipeline", 1)}, "global_batch": 32, **changes}
    few, whole = (dry.report(layout, whole=whole, **more) for whole in (False, True))
    assert few.extrapolated_from and not whole.extrapolated_from
    same = ("state_bytes", "peak_bytes", "peak_phase", "by_kind", "collectives", "host_syncs", "parameters")
    assert {name: getattr(few, name) for name in same} == {name: getattr(whole, name) for name in same}


@pytest.mark.full
def test_small_blocks_that_share_a_bucket_are_run_whole(dry: DryRunner) -> None:
    found = dry.report({"data": 2, "zero": 1}, model={"preset": "nano", "layers": 8})
    assert not found.extrapolated_from


def test_attention_holds_no_scores(dry: DryRunner) -> None:
    """Twice the sequence in half as many of them: the same activations but for the rotary tables. Scores would take twice as much."""
    short, long = (
        dry.report({}, global_batch=batch, data={"seq_len": seq_len}, model={"preset": "nano", "layers": 1})
        for seq_len, batch in ((512, 4), (1024, 2))
    )
    assert long.by_kind["activations"] == pytest.approx(short.by_kind["activations"], rel=0.05)


def test_offloaded_optimizer_state_is_on_the_host(dry: DryRunner) -> None:
    found = dry.report({"data": 2}, races=True, model=SHALLOW, offload={"optimizer": True})
    assert "optimizer" not in found.by_kind
    assert found.host_bytes >= 12 * found.parameters  # masters and moments
    assert found.peak_bytes < dry.report({"data": 2}, model=SHALLOW).peak_bytes


@pytest.mark.parametrize(
    "layout", [{"data": 2, "zero": 3, "micro_batch": 4}, pytest.param({"tensor": 2}, marks=pytest.mark.full)], ids=str
)
def test_a_chunks_logits_are_all_that_exist(layout: dict[str, Any], dry: DryRunner) -> None:
    """A vocabulary so large that the peak is at the loss: 4 × 128 tokens, in 8 chunks."""
    model = {**SHALLOW, "vocab": 16_384}
    whole, chunked = (
        dry.report(layout, model=model, global_batch=8, loss={"chunk_tokens": tokens}) for tokens in (1024, 64)
    )
    assert chunked.by_kind["logits"] <= 3 * 4 * 64 * 16_384  # a chunk's, in fp32 twice and once in bf16
    saved = whole.by_kind["logits"] - chunked.by_kind["logits"]
    weight = 4 * 16_384 * 128  # the gradient of the head's weight is summed in fp32 beside that of the compute dtype
    assert chunked.peak_bytes <= whole.peak_bytes - saved + 2 * weight
    assert chunked.collectives == whole.collectives or layout.get("tensor")
