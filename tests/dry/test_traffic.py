"""What NCCL would send for gradients and parameters of ZeRO-1 and ZeRO-2: 2Ψ(N−1)/N elements, gradients in the dtype of their sums."""

import pytest
from harness.dry_run import SPEC, DryRunner

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec


@pytest.mark.parametrize(
    ("zero", "gradients", "size"),
    [
        (1, "compute", 2),
        (2, "fp32", 4),
        pytest.param(1, "fp32", 4, marks=pytest.mark.full),
        pytest.param(2, "compute", 2, marks=pytest.mark.full),
    ],
)
def test_gradients_are_sent_in_the_dtype_of_their_sums(zero: int, gradients: str, size: int, dry: DryRunner) -> None:
    layout, precision = {"data": 4, "zero": zero}, {"compute": "bf16", "gradients": gradients}
    found = dry.report(layout, precision=precision)
    share = found.parameters * 3 / 4
    # The loss and the norm are summed over the world, whose ranks are those of the data axis.
    sent = {(one.axis, one.kind): one.bytes for one in found.collectives if one.kind != "all_reduce"}
    assert sent == {("data", "reduce_scatter"): size * share, ("data", "all_gather"): 2 * share}
    spec = TrainSpec.model_validate({**SPEC, "layout": layout, "precision": precision})
    setting = setting_of(spec, 256, "cuda")
    assert isinstance(setting, Setting)
    assert {flow: moved.bytes for flow, moved in traffic(setting).moved.items()} == sent
