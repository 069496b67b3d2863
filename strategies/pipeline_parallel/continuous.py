"""PipeDream-2BW (Narayanan et al., 2006.09503): a pipeline that is not flushed between steps, with two versions of the weights.

    W(t+1) = W(t) − ν · ∇f(W(t−1))

The passes of global batch t use W(t−1), those of batch t+1 use W(t). So batch t+1 begins before batch t's update. In the steady state
every rank runs one forward and one backward pass in each of a step's m slots, and equal stages have no bubble. A message travels while its
ranks compute.

A step ends for all ranks at the same slot, because the norm of the gradients is a sum over all stages. `alternating.py` has the order
of the paper, which has no such slot. By then rank i (0-based, of p) has
run 2(p−1) − i forward and i backward passes of the next batch. Their gradients are summed apart. Rank i holds the activations of
2(p − 1 − i) + 1 micro-batches.

A run's first step, and one after a restored state, first runs these passes too, with the same version. The last step runs none. So a run
that continues computes what it would have computed without a stop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..cost.stage_balance import stage_blocks, stage_costs
from ..data_parallel.ddp import DDP
from ..data_strategy import DataStrategy
from ..documents import taken
from ..fields import Fields, Inputs
from ..mesh import Mesh
from ..telemetry.current import current
from .autograd_stage import AutogradStage
from .ideal_timeline import SCHEDULE, Passes, Replay, in_own_step
from .neighbours import Neighbours
from .schedule import Loss, Pipeline, Split
from .schedule_order import Order, ahead, delayed_order
from .simulator import Durations, evenly, steady_bubble
from .stage_shapes import Examples
from .weight_versions import WeightVersions

#: Token numbers of inputs, with their documents if they are packed, and of targets, each [micro-batches × micro-batch, seq].
Pair = tuple[Inputs, torch.Tensor]


class ContinuousPipeline(Pipeline):
    """Runs 2BW's slots. Micro-batches 0 to m − 1 are the step's, m to 2m − 1 the next one's; between steps they are renumbered.

    `gradients` has the sums of the step's gradients, and apart from them those of the next step's.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: Mesh,
        microbatches: int,
        loss: Loss,
        split: Split,
        gradients: DDP,
    ) -> None:
        super().__init__(parts, mesh, microbatches, loss, split, gradients)
        assert split.shapes is not None, "the rules refuse models whose shapes are not known"
        self._rank, self._ranks = mesh.index("pipeline"), mesh.layout.pipeline
        self._gradients, self._versions = gradients, WeightVersions(gradients.weights, self._versions_held())
        self.older = self._versions.older
        self._down = Neighbours(mesh, 1, split.shapes.passed_on)
        self._up = Neighbours(mesh, -1, split.shapes.passed_on)
        self._following: Callable[..., Pair | None] = lambda _=1: None
        self._left = 0
        self.ends_apart = (
            False  # whether no sum over all ranks ends each step, so that messages may still travel after it
        )
        self.tied_ends = (
            False  # whether the first and the last rank share a weight, and so wait for each other in each step
        )
        self._begun: Inputs | None = None  # the inputs of the batch of which passes have run
        self._inputs: list[tuple[torch.Tensor, dict[str, Any]]] = []
        self._targets: list[torch.Tensor] = []
        self._losses: dict[int, torch.Tensor] = {}

    def _make_stages(
        self,
        parts: Sequence[nn.Module],
        shapes: Examples | None,  # noqa: ARG002
        data: DataStrategy,  # noqa: ARG002
    ) -> Sequence[AutogradStage]:
        (part,) = parts
        return [AutogradStage(part, self._mesh.index("pipeline"))]

    @property
    def order(self) -> Order:
        """The actions of every rank in a step of the steady state."""
        return delayed_order(self._layout.pipeline, self._microbatches)

    def plan(self) -> dict[str, Any]:
        """As `Pipeline.plan`. Ranks that end a step apart have the bubble of many steps."""
        if not self.ends_apart:
            return super().plan()
        work = stage_costs(self._costs, stage_blocks(self._layout, self._costs))
        return {**super().plan(), "bubble_simulated": self._steady_bubble(evenly(work))}

    def _compared(self, everyone: Sequence[Passes]) -> Replay:
        """As `Pipeline._compared`. Ranks that end a step apart are compared each in its own step, whose passes follow each other."""
        if not self.ends_apart:
            return super()._compared(everyone)
        forward, backward = ([each.of(kind) for each in everyone] for kind in ("F", "B"))
        simulated = self._steady_bubble(Durations(forward, backward, [0.0] * self._ranks))
        return in_own_step(everyone[self._rank], self._rank, simulated)

    def _steady_bubble(self, durations: Durations) -> float:
        return steady_bubble(durations, self._microbatches if self.tied_ends else None)

    @property
    def _fill(self) -> int:
        """Slots before the first step's, in which the pipeline fills."""
        return 2 * (self._ranks - 1)

    def _versions_held(self) -> int:
        """The versions of its weights that this rank holds."""
        return 2

    def expect(self, following: Callable[..., Pair | None], left: int = 0) -> None:
        """`following(number)` returns the batch that many (default: one) after the one that is trained next, None if there is none.

        `left`: how many there are after it.
        """
        self._following, self._left = following, left

    def before_update(self) -> None:
        """No pass of the step's batch is left, so that its version may be written."""
        self._versions.turn()

    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """As `Pipeline.train`, with the passes of the batch after it that belong to the step's slots."""
        following, self._following = self._following(), lambda: None
        goes_on = self._begun is inputs
        if not goes_on:
            self._begin()
        self._split((inputs, targets), following)
        with current().clock.waiting, current().tracer.span("other", SCHEDULE), self._own_sums(goes_on):
            for slot in range(0 if goes_on else -self._fill, self._microbatches):
                self._run(slot)
            if following is None or not self.ends_apart:
                self._arrive()
        self._versions.use(0)
        self._begun = None if following is None else following[0]
        return self._close()

    def _arrive(self) -> None:
        """Wait until no message travels."""
        self._down.wait()
        self._up.wait()

    def _begin(self) -> None:
        """Drop what has run of a batch that does not come, as when a failed step is examined."""
        self._arrive()
        self._gradients.drop_swapped()
        for part in (*self.stages, self._down, self._up):
            part.forget()
        self._losses.clear()
        self._versions.begin()

    def _split(self, batch: Pair, following: Pair | None) -> None:
        """Divide the step's batch, and the one after it if there is one, into micro-batches."""
        pairs = [batch] if following is None else [batch, following]
        self._inputs = [tokens_of(part) for inputs, _ in pairs for part in inputs.chunk(self._microbatches)]
        self._targets = [part for _, targets in pairs for part in targets.chunk(self._microbatches)]

    @contextmanager
    def _own_sums(self, goes_on: bool) -> Iterator[None]:
        """Sum gradients where those of earlier passes of the batch are, and leave the step's sums to be reduced."""
        if goes_on and self._rank:
            self._gradients.swap_gradients()
        yield
        if self._rank:
            self._gradients.swap_gradients()

    def _run(self, slot: int) -> None:
        """One slot of this rank: both passes, each with its batch's version, and the messages."""
        if self._rank and slot == self._microbatches - self._rank:
            self._gradients.swap_gradients()  # the next backward pass is the next batch's first
        forward, backward = ahead(self._rank, self._ranks, slot)
        self._down.wait()
        output = self._forward(forward) if self._exists(forward) else None
        self._down.exchange(output, forward + 1 if self._rank and self._exists(forward + 1) else None)
        self._up.wait()
        gradient = self._backward(backward) if self._exists(backward) else None
        self._up.exchange(gradient, backward + 1 if not self.last and self._exists(backward + 1) else None)

    def _exists(self, number: int) -> bool:
        return 0 <= number < len(self._inputs)

    def _forward(self, number: int) -> torch.Tensor | None:
        """What the next stage gets, None after the last stage."""
        self._versions.use(0 if number >= self._microbatches else 1)
        tokens, more = self._inputs[number]
        given = tokens if self._first else self._down.arrived.pop(number)
        output: torch.Tensor = self.stages[0].forward_one_chunk(number, given, **more)
        if not self.last:
            return output.detach()
        loss = self._loss_of(output, self._targets[number])
        self.stages[0].close(number, loss)
        self._losses[number] = loss.detach()
        return None

    def _backward(self, number: int) -> torch.Tensor | None:
        """What the stage before gets, None before the first stage."""
        self._versions.use(0 if number >= self._microbatches else 1)
        gradient = None if self.last else self._up.arrived.pop(number)
        given: torch.Tensor | None = self.stages[0].backward_one_chunk(number, gradient)
        return given

    def _close(self) -> torch.Tensor:
        """The step's summed loss (0 off the last stage). What has run of the next batch gets its numbers there."""
        m = self._microbatches
        done = [self._losses.pop(number) for number in range(m) if number in self._losses]
        self._losses = {number - m: loss for number, loss in self._losses.items()}
        for part in (*self.stages, self._down, self._up):
            part.renumber(m)
        return torch.stack(done).sum() if done else torch.zeros((), device=self._mesh.device)


def tokens_of(inputs: Inputs) -> tuple[torch.Tensor, dict[str, Any]]:
    """The tokens, and what stages take beside them: every stage reads the rows, and so knows their documents."""
    assert not isinstance(inputs, Fields)  # they are refused with delayed gradients
    return taken(inputs)
