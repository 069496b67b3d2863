"""The one process of a certificate that rounds blocks as a layout's messages do, or takes gradients as late as its schedule.

`python -m shardyard.workers.certificate.reference SPEC` takes the spec with that layout, and the arguments of `workers/local.py`. It trains
with the model, loss, optimizer and data of any run on one rank, and without any strategy. What a layout adds is computed here, one
rank after the other, from what papers and pages say of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ...strategies.batch import Batch
from ...strategies.fields import Inputs
from ...strategies.layout import Layout
from ...strategies.mesh import make_mesh
from ...strategies.param_shard import Parameter, parameters
from ...strategies.runner import Runner
from ...strategies.zero_plus_plus import BITS
from ..local import leave, main
from ..spec import Run, TrainSpec
from ..trainer.assemble import assemble
from ..trainer.build import TrainerParts, allocate
from ..trainer.event_outbox import EmitEvent
from ..trainer.instruments import Instruments
from .exact_spec import alone
from .message_rounding import Array, Change, by_shard, by_tensor_rank, read_back, summed
from .references import DELAYS, cut_of, delay_of, extra_of


def train_reference(run: Run, device: torch.device, emit: EmitEvent, instruments: Instruments) -> None:
    """Train what `run`, whose layout has several ranks, trains, in this process."""
    one = run.model_copy(update={"train": alone(run.train)})
    parts = allocate(one, make_mesh(one.train.layout, device))
    parallel = replace(parts.parallel, runner=runner_of(run.train, parts))
    assemble(replace(parts, parallel=parallel), emit, instruments).run()


def runner_of(train: TrainSpec, parts: TrainerParts) -> Runner:
    """The runner of the one process whose `parts` are those of a layout with one rank."""
    layout = train.layout
    if extra_of(layout) == DELAYS:
        trained = parameters(parts.parallel.parts, parts.mesh)
        return Late(parts.parallel.runner, trained, [delay_of(one.name, layout) for one in trained])
    tied = parts.architecture is not None and parts.architecture.tied
    weights = parameters(parts.parallel.parts, parts.mesh, frozen=True)
    return Rounding(parts.parallel.runner, weights, layout, train.check(parts.tokens.vocab), tied)


class Rounding(Runner):
    """Rounds `weights`, frozen ones too, and gradients as ZeRO++ does between the ranks of `layout`.

    `inner` runs any number of sequences at once.
    """

    last = True

    def __init__(self, inner: Runner, weights: Sequence[Parameter], layout: Layout, batch: Batch, tied: bool) -> None:
        given = layout.zero_plus_plus
        assert given is not None
        self._inner, self._weights, self._layout, self._batch, self._given = inner, weights, layout, batch, given
        self._trained = [one for one in weights if one.value.requires_grad]
        self._cuts = {one: cut_of(one.name, tied) for one in weights}
        self._replicas = layout.shard or layout.data * layout.context  # over which ZeRO shards
        # Later micro-batches are reduced with the first one under ZeRO-1, and under a pipeline, where a stage's last pass ends the sum.
        self._each_microbatch = layout.zero > 1 and layout.stages == 1

    def train(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """The passes of all ranks, one after the other, with rounded weights; the gradients are the sums that ranks receive."""
        before = self._round_weights()
        total, losses = [torch.zeros_like(one.value) for one in self._trained], []
        for exchange in self._exchanges(inputs, targets):
            of_ranks = []
            for passes in exchange:
                found = [self._gradients(*one) for one in passes]
                losses += [loss for loss, _ in found]
                of_ranks.append([torch.stack(each).sum(0) for each in zip(*(grads for _, grads in found), strict=True)])
            for one, sum_, each in zip(self._trained, total, zip(*of_ranks, strict=True), strict=True):
                sum_.add_(self._received(one, each))
        _put(self._weights, before)
        for one, sum_ in zip(self._trained, total, strict=True):
            one.value.grad = sum_
        return torch.stack(losses).sum()

    def validate(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """With rounded weights too."""
        before = self._round_weights()
        loss = self._inner.validate(inputs, targets)
        _put(self._weights, before)
        return loss

    def _exchanges(self, inputs: Inputs, targets: Tensor) -> list[list[list[tuple[Inputs, Tensor]]]]:
        """The micro-batches whose gradients are reduced together, by rank: rows (micro-batch · D + rank) · size + i of the batch."""
        ranks, count = self._batch.data, self._batch.microbatches
        pairs: list[tuple[Inputs, Tensor]] = list(
            zip(inputs.chunk(count * ranks), targets.chunk(count * ranks), strict=True)
        )
        if self._each_microbatch:
            return [[[pairs[number * ranks + rank]] for rank in range(ranks)] for number in range(count)]
        return [[[pairs[number * ranks + rank] for number in range(count)] for rank in range(ranks)]]

    def _gradients(self, inputs: Inputs, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The loss of some sequences, and its gradients of all parameters."""
        for one in self._trained:
            one.value.grad = None
        loss = self._inner.train(inputs, targets)
        values = [one.value for one in self._trained]
        return loss, [torch.zeros_like(value) if value.grad is None else value.grad for value in values]

    def _received(self, one: Parameter, each: Sequence[Tensor]) -> Tensor:
        """The sum of the gradients of all ranks, each number as the rank that shards it gets it, in groups over which ZeRO shards."""
        given, layout = self._given, self._layout
        if given.gradients is None:
            return torch.stack(list(each)).sum(0)
        change = partial(summed, block=given.block, bits=BITS[given.gradients], node=given.gradient_node)
        size = layout.shard or layout.data
        groups = [each[first : first + size] for first in range(0, layout.data, size)]
        return torch.stack([self._changed(one, group, change) for group in groups]).sum(0)

    def _round_weights(self) -> list[Tensor]:
        """Let the model compute with weights as they are gathered; returns those before."""
        before, given = [one.value.detach().clone() for one in self._weights], self._given
        if given.weights is not None:
            bits = BITS[given.weights]

            def change(rows: Sequence[Array]) -> Array:
                return read_back(rows[0], given.block, bits)

            _put(self._weights, [self._changed(one, [one.value], change) for one in self._weights])
        return before

    def _changed(self, one: Parameter, values: Sequence[Tensor], change: Change) -> Tensor:
        """`change` for every shard of every tensor rank's piece of a parameter, of which ranks have `values`."""
        arrays = [value.detach().reshape(value.shape or (1,)).numpy() for value in values]
        columns = self._layout.zero == 3 and self._layout.tensor == 1
        of_part = partial(by_shard, ranks=self._replicas, change=change, columns=columns)
        changed = by_tensor_rank(arrays, self._cuts[one], self._layout.tensor, of_part)
        return torch.from_numpy(changed).view_as(values[0])


class Late(Runner):
    """Takes the gradient of each parameter at the weights from before `delays` updates. In the first steps there are none older."""

    last = True

    def __init__(self, inner: Runner, trained: Sequence[Parameter], delays: Sequence[int]) -> None:
        self._inner, self._trained, self._delays = inner, trained, delays
        self._versions: list[list[Tensor]] = []  # the newest is the last

    def train(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """The passes at older weights; the optimizer then changes the newest."""
        newest = [one.value.detach().clone() for one in self._trained]
        held = max(self._delays) + 1
        self._versions = [*(self._versions or [newest] * held)[1:], newest]
        _put(self._trained, [self._versions[-1 - delay][place] for place, delay in enumerate(self._delays)])
        loss = self._inner.train(inputs, targets)
        _put(self._trained, newest)
        return loss

    def validate(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """At the newest weights."""
        return self._inner.validate(inputs, targets)


@torch.no_grad()
def _put(weights: Sequence[Parameter], values: Sequence[Tensor]) -> None:
    for one, value in zip(weights, values, strict=True):
        one.value.copy_(value)


if __name__ == "__main__":
    leave(main(work=train_reference))
