"""Offload on fake devices: the host waits for what it computes with alone, and few micro-batches say what many need."""

from typing import Any

import pytest
from harness.dry_run import DryRunner
from harness.host_waits import OFFLOADED_OPTIMIZER, OFFLOADED_PARAMETERS, STEP, waits

Case = tuple[dict[str, Any], dict[str, Any]]
FULL: list[Case] = [
    ({"data": 2, "zero": 3}, {"optimizer": 0.5, "activations": True}),
    ({"data": 2, "zero": 3}, {"parameters": True, "activations": True}),
    ({"pipeline": 2, "schedule": "zbv", "micro_batch": 2}, {"activations": True}),
    ({"tensor": 2, "data": 2}, {"optimizer": 1, "activations": True}),
]


@pytest.mark.parametrize(
    ("layout", "offload"),
    [
        ({"data": 2, "zero": 1}, {"optimizer": 1, "activations": True}),
        *(pytest.param(*case, marks=pytest.mark.full) for case in FULL),
    ],
    ids=str,
)
def test_the_host_waits_for_the_loss_and_for_what_it_updates(
    layout: dict[str, Any], offload: dict[str, Any], dry: DryRunner
) -> None:
    """Never for activations."""
    found = waits(dry.report(layout, offload=offload, races=True).host_syncs)
    allowed = {**STEP}
    if "optimizer" in offload:
        allowed[OFFLOADED_OPTIMIZER] = found.get(OFFLOADED_OPTIMIZER, 0)
        assert 1 <= allowed[OFFLOADED_OPTIMIZER] <= 2, "all is in one bucket"
    if "parameters" in offload:
        allowed[OFFLOADED_PARAMETERS] = found.get(OFFLOADED_PARAMETERS, 0)
        assert allowed[OFFLOADED_PARAMETERS] > 0
    assert found == allowed


@pytest.mark.full
def test_a_few_micro_batches_show_what_many_need(dry: DryRunner) -> None:
    """All blocks are run: memory does not grow evenly with them."""
    more = {"model": {"preset": "nano", "layers": 6}, "offload": {"activations": True}}
    few, whole = (dry.report({"data": 2, "zero": 3, "micro_batch": 1}, whole=whole, **more) for whole in (False, True))
    assert few.extrapolated_from and not whole.extrapolated_from
    assert (few.peak_bytes, few.by_kind) == (whole.peak_bytes, whole.by_kind)


def test_gradients_on_the_host_are_sent_from_the_device(dry: DryRunner) -> None:
    """Those of a tied embedding, which both stages hold: NCCL sends nothing from the host, and a dry run breaks off at such a message."""
    model = {"preset": "qwen3-nano", "layers": 2}
    found = dry.report({"pipeline": 2, "data": 2, "zero": 3}, offload={"parameters": True}, model=model)
    sharded = 256 * 128 // 2
    assert [one.what for one in found.messages if one.elements == sharded] == ["send", "recv"]
