"""The loss's copies of the logits, in bytes per token, and the smaller part that is kept for its backward pass."""

from typing import Any

import pytest

from shardyard.strategies.cost import logits
from shardyard.strategies.cost.estimate import Setting

from .test_estimate import setting

VOCAB = 256


@pytest.mark.parametrize(
    ("layout", "train", "peak", "kept"),
    [
        ({}, {"precision": "bf16"}, 12 * VOCAB, 4 * VOCAB),
        ({}, {"precision": "fp32"}, 12 * VOCAB, 4 * VOCAB),
        ({}, {"precision": "fp64"}, 24 * VOCAB, 8 * VOCAB),
        ({}, {"precision": "bf16", "loss": {"z_loss": 1e-4}}, 20 * VOCAB, 8 * VOCAB),
        ({"tensor": 2}, {"precision": "bf16"}, 14 * VOCAB / 2, 4 * VOCAB / 2),
        ({"tensor": 2}, {"precision": "fp32"}, 12 * VOCAB / 2, 4 * VOCAB / 2),
        ({"tensor": {"mode": "2.5d", "shape": [2, 2, 2]}}, {"precision": "bf16"}, 14 * VOCAB / 8, 4 * VOCAB / 8),
        ({"tensor": {"mode": "3d", "shape": [2, 2, 2]}}, {"precision": "bf16"}, 14 * VOCAB / 8, 4 * VOCAB / 8),
    ],
    ids=str,
)
def test_three_wide_copies_of_which_one_is_kept(
    layout: dict[str, Any], train: dict[str, Any], peak: float, kept: float
) -> None:
    found = setting(layout, **train)
    assert isinstance(found, Setting)
    assert (logits.loss_peak(found), logits.loss_kept(found)) == (peak, kept)
