"""PipeDream's weight stashing: both passes of a minibatch through a stage use one version of its weights.

Narayanan et al., SOSP 2019, 1806.03377, section 3.3:

    W_i(t+1) = W_i(t) − ν · ∂f/∂W_i at (W_0(t − p + 1), …, W_i(t − p + 1 + i), …, W_{p−1}(t))

With vertical sync (the same section) all stages use the version that was the newest at the input stage when the minibatch entered:

    W(t+1) = W(t) − ν · ∇f(W(t − p + 1))

A step is a minibatch: one micro-batch per replica, then an update. Rank i (0-based, of p) is p − 1 − i minibatches ahead in its
forward passes. So it holds p − i minibatches and as many versions of its weights, and its gradient is p − 1 − i updates late. With
vertical sync every rank holds p versions, also those of minibatches that have not reached it, and its gradient is p − 1 updates late.

In a step every rank runs a forward pass of its own minibatch. Then the backward passes of the step's minibatch run from the last rank to
the first. A rank's update needs nothing of other ranks, unless gradients are clipped by their norm, which is a sum over all stages. Without
clipping (`ends_apart`) the last rank begins the next step while those before it run their backward passes, as in the paper: in the steady
state every rank runs one forward and one backward pass in turns, and equal stages have no bubble. With clipping all ranks end a step
together: forward passes run at a time, backward passes one after the other. The updates are the same.

A run's first step, and one after a restored state, first runs the forward passes that the steps before would have run, each with the
version that it had. A checkpoint has these versions. So a run that continues computes what it would have computed without a stop.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..delayed_rules import versions_of
from ..documents import Packed
from ..fields import Inputs
from ..telemetry.current import current
from .continuous import ContinuousPipeline, Pair, tokens_of
from .ideal_timeline import SCHEDULE
from .schedule_order import Order, alternating_order


class StashingPipeline(ContinuousPipeline):
    """Runs PipeDream's steps. Minibatch 0 is the step's, those after it have numbers from 1; between steps they are renumbered.

    Forward passes of a step have a `turn`: the turns before the last one, p − 1, fill the pipeline.
    """

    @property
    def order(self) -> Order:
        """The actions of every rank in a step of the steady state."""
        return alternating_order(self._ranks)

    def _versions_held(self) -> int:
        return versions_of(self._layout, self._rank)

    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """As `Pipeline.train`, with the forward pass of the minibatch of which it is this rank's turn."""
        own, ahead, left = (inputs, targets), self._following, self._left
        self.expect(lambda _=1: None)
        goes_on = self._begun is inputs
        self._reads_rows = self._first or self.last or isinstance(inputs, Packed)
        if not goes_on:
            self._begin()
        following = ahead()
        with current().clock.waiting, current().tracer.span("other", SCHEDULE):
            for turn in range(self._ranks - 1 if goes_on else 0, self._ranks):
                self._pass_forward(turn, left, lambda number: ahead(number) if number else own)
            self._pass_backward()
            if following is None or not self.ends_apart:
                self._arrive()
        self._versions.use(0)
        self._begun = None if following is None else following[0]
        return self._end(targets.device)

    def _pass_forward(self, turn: int, left: int, batch: Callable[[int], Pair | None]) -> None:
        """This rank's forward pass of a turn, if there is such a minibatch, and its messages."""
        number = turn - self._rank
        self._down.wait()
        output = None
        if 0 <= number <= left:
            self._versions.use(self._age(number))
            found = batch(number) if self._reads_rows else None
            given, more = self._given(number, found)
            output = self.stages[0].forward_one_chunk(number, given, **more)
            if self.last:
                assert found is not None
                loss = self._loss_of(output, found[1])
                self.stages[0].close(number, loss)
                self._losses[number], output = loss.detach(), None
        leaving = None if output is None else output.detach()
        self._down.exchange(leaving, number + 1 if self._rank and 0 <= number + 1 <= left else None)

    def _given(self, number: int, batch: Pair | None) -> tuple[torch.Tensor, dict[str, Any]]:
        """What the stage takes: token numbers, or the hidden state of the stage before; and the documents of the rows, if packed."""
        tokens, more = (None, {}) if batch is None else tokens_of(batch[0])
        if not self._first:
            return self._down.arrived.pop(number), more
        assert tokens is not None
        return tokens, more

    def _pass_backward(self) -> None:
        """The backward pass of the step's minibatch, after those of the stages behind this one."""
        gradient = None
        if not self.last:
            self._up.exchange(None, 0)
            self._up.wait()
            gradient = self._up.arrived.pop(0)
        self._versions.use(self._age(0))
        leaving = self.stages[0].backward_one_chunk(0, gradient)
        if not self._first:
            self._up.exchange(leaving, None)

    def _age(self, number: int) -> int:
        """The age, in this step, of the version that both passes of minibatch `number` use.

        It was the newest when this rank ran the forward pass, or with vertical sync when the first rank did.
        """
        behind = 0 if self._layout.vertical_sync else self._rank
        return self._ranks - 1 - behind - number

    def _end(self, device: torch.device) -> torch.Tensor:
        """The step's loss (0 off the last stage). What has run of later minibatches gets its numbers in the next step."""
        loss = self._losses.pop(0, None)
        for part in (*self.stages, self._down, self._up):
            part.renumber(1)
        return torch.zeros((), device=device) if loss is None else loss
