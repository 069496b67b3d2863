"""What NCCL would send.

For gradients and parameters of ZeRO: 2Ψ(N−1)/N elements, of stage 3 3Ψ(N−1)/N, gradients in the dtype of sums. Between the parts of an
embedding that tensor ranks share: its columns for their positions. Along the lines of a grid and a cube: reduced gradients, too.
"""

from typing import Any

import pytest
from harness.dry_run import SPEC, DryRunner
from harness.layouts import CUBE, GRID

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.dry_run.report import DryRun
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
    sent = _sent(found)
    assert sent == {("data", "reduce_scatter"): size * share, ("data", "all_gather"): 2 * share}
    assert _expected(layout, precision=precision) == sent


def test_zero_3_pads_no_rows_of_a_matrix_whose_columns_it_shards(dry: DryRunner) -> None:
    """Keys and values have 2 rows of 8 columns, for 4 ranks. Of all parameters no row is padded, so exactly Ψ travels."""
    layout, model = {"data": 4, "zero": 3}, {"dim": 8, "heads": 4, "kv_heads": 1, "hidden": 96, "layers": 2}
    found = dry.report(layout, model=model)
    share = found.parameters * 3 / 4
    sent = _sent(found)
    assert sent == {("data", "reduce_scatter"): 4 * share, ("data", "all_gather"): 2 * 2 * share}
    assert _expected(layout, model=model) == sent


def test_an_embedding_exchanges_columns_for_positions(dry: DryRunner) -> None:
    """Each of 2 ranks has half of the columns of all tokens, keeps half of these, and gets their gradient back."""
    layout = {"tensor": 2, "sequence": True}
    found = dry.report(layout)
    tokens, dim = 16 * 128, 128
    sent = _sent(found)
    assert sent["tensor", "all_to_all"] == 2 * 2 * tokens * (dim / 2) / 2
    expected = _expected(layout)
    del expected["tensor", "all_reduce"]
    assert expected == sent
    (meetings,) = found.meetings.values()
    assert sum(one.what.startswith("shard_dim_alltoall") for one in meetings) == 3  # a validation batch has one


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor": CUBE},
        pytest.param({"tensor": CUBE, "zero": 2}, marks=pytest.mark.full),
        pytest.param({"tensor": GRID, "zero": 1}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_the_lines_of_grids_and_cubes_share_the_sums_of_what_they_hold_whole(
    layout: dict[str, Any], dry: DryRunner
) -> None:
    layout = {**layout, "data": 3}
    changes = {"model": {"family": "gpt2", "layers": 2, "dim": 64, "heads": 4, "hidden": 128}, "global_batch": 24}
    sent = _sent(dry.report(layout, **changes))
    expected = {flow: size for flow, size in _expected(layout, **changes).items() if flow[1] != "all_reduce"}
    assert expected == pytest.approx(sent)
    assert sent["tensor_row", "broadcast"]


def _sent(found: DryRun) -> dict[tuple[str, str], float]:
    """Without the loss and the norm, which are summed over the world, whose ranks are those of the data axis."""
    return {(one.axis, one.kind): one.bytes for one in found.collectives if one.kind != "all_reduce"}


def _expected(layout: dict[str, Any], **changes: Any) -> dict[tuple[str, str], float]:
    setting = setting_of(TrainSpec.model_validate({**SPEC, "layout": layout, **changes}), 256, "cuda")
    assert isinstance(setting, Setting)
    return {flow: moved.bytes for flow, moved in traffic(setting).moved.items()}
