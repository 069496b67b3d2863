"""Gradient accumulation without a pipeline: micro-batches one after the other, gradients summed (the naive twin of a pipeline schedule)."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from .data_strategy import DataStrategy
from .documents import Packed, taken
from .fields import Inputs
from .runner import Runner
from .telemetry.current import current

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Accumulate(Runner):
    """Runs the micro-batches of a step through the whole model.

    `within`: the model's forward pass computes the loss (`chunked_loss.py`).
    """

    last = True

    def __init__(
        self, model: nn.Module, data: DataStrategy, microbatches: int, loss: Loss, within: bool = False
    ) -> None:
        self._model, self._data, self._microbatches, self._loss = model, data, microbatches, loss
        self._within = within

    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward of `inputs`, `targets` [micro-batches × micro-batch, seq], or fields and numbers of as many samples.

        Returns the summed loss.
        """
        losses = []
        for number, (x, y) in enumerate(self._pairs(inputs, targets)):
            with current().tracer.span("forward", "forward", number), current().logged.microbatch():
                loss = self._loss_of(x, y)
            with current().tracer.span("backward", "backward", number):
                self._data.before_backward(last=number == self._microbatches - 1)
                loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    @torch.no_grad()
    def validate(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """The summed loss, forward only."""
        return torch.stack([self._loss_of(x, y) for x, y in self._pairs(inputs, targets)]).sum()

    def _pairs(self, inputs: Inputs, targets: torch.Tensor) -> Iterator[tuple[Inputs, torch.Tensor]]:
        """The micro-batches."""
        chunks: Sequence[Inputs] = inputs.chunk(self._microbatches)
        return zip(chunks, targets.chunk(self._microbatches), strict=True)

    def _loss_of(self, x: Inputs, y: torch.Tensor) -> torch.Tensor:
        x, more = taken(x) if isinstance(x, Packed) else (x, {})
        if self._within:
            loss: torch.Tensor = self._model(x, lambda output: self._loss(output, y), **more)
            return loss
        return self._loss(self._model(x, **more), y)
