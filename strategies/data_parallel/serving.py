"""The runner of a parameter server, which has no model: it takes part in a step by its data strategy alone."""

import torch

from ..fields import Inputs
from ..runner import Runner


class Serving(Runner):
    """Computes nothing."""

    last = False

    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """0: a server has no share of the loss."""
        return torch.zeros((), device=targets.device)

    def validate(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """0, as in training."""
        return self.train(inputs, targets)
