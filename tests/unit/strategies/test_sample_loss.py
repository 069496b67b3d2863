"""The step's loss is the mean over its samples, however they fall into micro-batches."""

from typing import Any

import pytest
import torch

from shardyard.strategies.precision import LossScale
from shardyard.strategies.sample_loss import SampleLoss


def test_shares_of_micro_batches_sum_up_to_the_mean() -> None:
    losses, numbers = torch.rand(8, dtype=torch.float64), torch.arange(8)
    loss = SampleLoss(8)
    shares = [loss(part, number) for part, number in zip(losses.chunk(4), numbers.chunk(4), strict=True)]
    assert torch.stack(shares).sum().item() == pytest.approx(losses.mean().item(), rel=1e-14)
    scaled = SampleLoss(8, LossScale(scale=4.0))(losses, numbers)
    assert scaled.item() == pytest.approx(4 * losses.mean().item(), rel=1e-14)


def test_half_precision_is_summed_in_fp32() -> None:
    losses = torch.full((4096,), 1.001, dtype=torch.bfloat16)
    found = SampleLoss(4096)(losses, torch.arange(4096))
    assert found.dtype == torch.float32 and found.item() == pytest.approx(losses[0].item(), rel=1e-6)


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (torch.zeros(()), ValueError, r"returned \(\); it must return one loss per sample, here \(3,\)"),
        (torch.zeros(3, 1), ValueError, r"returned \(3, 1\)"),
        (torch.zeros(3, dtype=torch.int64), TypeError, "returned torch.int64"),
        ({"loss": torch.zeros(3)}, TypeError, "returned dict"),
    ],
)
def test_another_return_value_is_named(returned: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SampleLoss(3)(returned, torch.arange(3))
