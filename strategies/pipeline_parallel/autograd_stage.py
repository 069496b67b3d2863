"""A pipeline's stage whose graphs may live from one step to the next, which those of torch's stages do not.

It keeps a micro-batch's input and output from the forward pass to the backward pass, under a number, and nothing else.
"""

from typing import Any

import torch
from torch import nn

from ..telemetry.current import current
from .ideal_timeline import BACKWARD, FORWARD


class AutogradStage:
    """Stage `stage_index`. Its passes count as its rank's busy time, and are recorded in a trace."""

    def __init__(self, part: nn.Module, stage_index: int) -> None:
        self._part, self.stage_index = part, stage_index
        self._graphs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward_one_chunk(self, number: int, given: torch.Tensor, **more: Any) -> torch.Tensor:
        """The output for `given`: token numbers, or the hidden state of the stage before. `more`: what `documents.taken` returns."""
        span = current().tracer.span("forward", FORWARD, number, self.stage_index)
        with current().clock.busy, span, current().logged.microbatch():
            given = given.requires_grad_() if given.is_floating_point() else given
            output: torch.Tensor = self._part(given, **more)
        self._graphs[number] = given, output
        return output

    def close(self, number: int, loss: torch.Tensor) -> None:
        """Let the backward pass of micro-batch `number` begin at its loss."""
        self._graphs[number] = self._graphs[number][0], loss

    def backward_one_chunk(self, number: int, gradient: torch.Tensor | None, **_: Any) -> torch.Tensor | None:
        """The gradient of the input, None for token numbers. `gradient`: of the output, None for a loss. Weights' gradients add up."""
        given, output = self._graphs.pop(number)
        span = current().tracer.span("backward", BACKWARD, number, self.stage_index)
        with current().clock.busy, span:
            torch.autograd.backward(output, gradient)
        return given.grad

    def renumber(self, by: int) -> None:
        """Give the graphs that live on the numbers that they have in the next step: `by` less."""
        self._graphs = {number - by: graph for number, graph in self._graphs.items()}

    def forget(self) -> None:
        """Drop all graphs."""
        self._graphs.clear()
