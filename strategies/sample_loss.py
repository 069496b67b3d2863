"""The loss of a module that computes one loss per sample itself: summed, and divided once by the step's global number of samples.

A step's loss is the mean over the samples of its global batch, so it does not depend on how they fall into ranks and micro-batches.
"""

import torch

from .loss import TokenLoss


class SampleLoss(TokenLoss):
    """`TokenLoss` for samples: its `tokens` is the number of samples of a step. Validation has the same mean."""

    def __call__(self, losses: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """`losses` [rows] of the `samples` [rows] (their numbers) → this micro-batch's share of the step's loss, a scalar in fp32
        (fp64 for fp64). Raises ValueError for another shape, TypeError for what is no tensor of floats.
        """
        if not isinstance(losses, torch.Tensor) or not losses.is_floating_point():
            what = losses.dtype if isinstance(losses, torch.Tensor) else type(losses).__name__
            raise TypeError(f"the model returned {what}; it must return one loss per sample, a tensor [rows] of floats")
        if losses.shape != samples.shape:
            raise ValueError(
                f"the model returned {tuple(losses.shape)}; it must return one loss per sample, here {tuple(samples.shape)}"
            )
        wide = losses if losses.dtype == torch.float64 else losses.float()
        return wide.sum() * self.share()
