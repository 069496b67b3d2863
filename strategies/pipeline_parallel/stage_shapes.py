"""What a pipeline's stages take and return for one micro-batch, where it is known before the first step.

With these, torch's stages allocate their buffers at once, instead of passing a first micro-batch of shapes through the pipeline. What a
decoder passes on follows from its sizes, and so its validation needs no headers that a host would wait for. What a module of the user's
own passes on is found by a forward pass before the first step: torch's own would give it numbers that are no samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..batch import Batch
from ..layout import Layout

#: Shape and dtype of what a stage passes on to the next.
Hidden = tuple[Sequence[int], torch.dtype]


def described(tensors: Sequence[torch.Tensor]) -> tuple[Hidden, ...]:
    """Shape and dtype of each."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)


class Examples(Protocol):
    """Tensors on the meta device, like those that stages take and return."""

    def inputs(self, stage: int) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """What `stage` takes by position."""

    def outputs(self, stage: int, stages: int) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """What `stage` returns; `stages`: their number."""


@dataclass(frozen=True)
class FoundShapes:
    """Of a module of the user's own. `passed_on`: by stage, as far as a rank's own stages pass it on or take it.

    `taken`: what the first stage takes by position: tokens, or nothing, where it takes fields by name.
    """

    passed_on: Mapping[int, Sequence[Hidden]]
    taken: Sequence[Hidden] = ()

    def inputs(self, stage: int) -> tuple[torch.Tensor, ...]:
        """What the stage before passes on, or what the first stage takes."""
        return _meta(self.passed_on[stage - 1] if stage else self.taken)

    def outputs(self, stage: int, stages: int) -> tuple[torch.Tensor, ...]:
        """What `stage` passes on. The last stage's losses are one tensor, which is not sent: its shape does not matter."""
        return _meta(self.passed_on[stage]) if stage < stages - 1 else (torch.empty(0, device="meta"),)


def _meta(described: Sequence[Hidden]) -> tuple[torch.Tensor, ...]:
    """Floats require gradients."""
    return tuple(
        torch.empty(shape, dtype=dtype, device="meta", requires_grad=dtype.is_floating_point)
        for shape, dtype in described
    )


@dataclass(frozen=True)
class StageShapes:
    """One rank's share of a micro-batch, [micro-batch, positions] with `dim` numbers per position between stages and `vocab` at the end;
    a `vocab` of None: the last stage leaves its head to the loss and returns the hidden state.

    On a grid of tensor ranks `micro_batch` is the share of a row and `dim` that of a column.

    `hidden_positions` are fewer than `positions` under sequence parallelism, which divides the hidden state between stages.
    """

    micro_batch: int
    positions: int
    hidden_positions: int
    dim: int
    vocab: int | None
    dtype: torch.dtype

    @property
    def passed_on(self) -> Hidden:
        """Shape and dtype of what a stage passes on to the next."""
        return (self.micro_batch, self.hidden_positions, self.dim), self.dtype

    def inputs(self, stage: int) -> torch.Tensor:
        """An example, on the meta device, of what `stage` takes: token numbers, or the hidden state of the stage before."""
        if stage == 0:
            return torch.empty(self.micro_batch, self.positions, dtype=torch.int64, device="meta")
        return self._hidden()

    def outputs(self, stage: int, stages: int) -> torch.Tensor:
        """An example, on the meta device, of what `stage` returns; the last one's logits as one process has them."""
        if stage < stages - 1 or self.vocab is None:
            return self._hidden()
        shape = (self.micro_batch, self.positions, self.vocab)
        return torch.empty(shape, dtype=self.dtype, device="meta", requires_grad=True)

    def _hidden(self) -> torch.Tensor:
        shape, dtype = self.passed_on
        return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=True)


def stage_shapes(
    layout: Layout, batch: Batch, seq_len: int, dim: int, vocab: int | None, compute: torch.dtype
) -> StageShapes | None:
    """The shapes of a decoder of width `dim` on `layout`, whose hidden states have the dtype `compute`.

    None where the ranks of a grid have hidden states of different widths.
    """
    positions, division = seq_len // layout.context, layout.division
    if dim % division.columns:
        return None
    hidden = positions // layout.tensor if layout.sequence and layout.tensor_shape is None else positions
    sequences = batch.micro_batch // division.rows
    return StageShapes(sequences, positions, hidden, dim // division.columns, vocab, compute)
