"""This rank's rows and positions of each global batch, and the randomness of each step.

With `ahead`, the next step's rows are read while a step computes. Nothing is read beyond the last step.
"""

import hashlib

import numpy as np
import torch

from ...strategies.context_parallel.apply import share_batch
from ...strategies.fields import Fields
from ...strategies.mesh import REPLICA, TENSOR_DEPTH, TENSOR_ROW
from ...strategies.precision import PRECISIONS
from ..data.position import Position
from .build import TrainerParts
from .read_ahead import Pair, ReadAhead


class Batches:
    """One rank's share of the training and validation batches, on its device."""

    def __init__(self, parts: TrainerParts, position: Position, *, ahead: bool = False) -> None:
        self._parts, self._position, self._ahead = parts, position, ahead
        self._reader = ReadAhead(self._read, parts.mesh.device)
        self._rows = rows_of(parts)
        self._replica, self._pipeline_rank = parts.mesh.index(REPLICA), parts.mesh.index("pipeline")
        self._following: dict[int, Pair] = {}  # by the number of its first sample

    def training(self, step: int) -> Pair:
        """This rank's share of the batch of `step`, micro-batch by micro-batch."""
        first = self._position.first_sample(step)
        given = self._following.pop(first, None)
        if given is None:  # what was read ahead is of another position in the data
            self._following.clear()
        return self._taken(step) if given is None else given

    def following(self, step: int, number: int = 1) -> Pair | None:
        """The batch `number` steps after that of `step`, which `training` then returns too; None after the last step."""
        if step + number > self._parts.spec.steps:
            return None
        first = self._position.first_sample(step + number)
        if first not in self._following:
            self._following[first] = self._taken(step + number)
        return self._following[first]

    def _taken(self, step: int) -> Pair:
        batch = self._reader.take(self._position.first_sample(step))
        if self._ahead and step < self._parts.spec.steps:
            self._reader.begin(self._position.first_sample(step + 1))
        return self._on_device(batch)

    def validation(self, number: int) -> Pair:
        """This rank's share of the validation batch `number`, counted from 0."""
        inputs, targets = self._share(self._parts.tokens.validation(number, self._rows))
        if self._parts.mesh.device.type == "cuda":
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        return self._on_device((inputs, targets))

    def close(self, *, wait: bool = True) -> None:
        """Stop reading ahead. `wait`: for the end of a batch that is being read."""
        self._reader.close(wait=wait)

    def seed(self, step: int) -> None:
        """Seed the randomness of `step` (dropout) by its number, so that each run of the step draws the same."""
        seed = _step_seed(self._parts.spec.seed, step, self._replica, self._pipeline_rank)
        # As `torch.manual_seed` does, which also formats the stack for every kind of device that is absent: 0.5 ms of a step.
        torch.default_generator.manual_seed(seed)
        if self._parts.mesh.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)

    def _read(self, first: int) -> Pair:
        return self._share(self._parts.tokens.batch(first, self._rows))

    def _share(self, pair: Pair) -> Pair:
        """This context rank's positions, with the starts of documents if they are packed, which the whole rows show.

        Fields are not cut (`TrainSpec` refuses a context axis); their floats get the model's dtype.
        """
        inputs, targets = pair
        if isinstance(inputs, Fields):
            return inputs.floats_as(PRECISIONS[self._parts.spec.precision.compute].compute), targets
        assert isinstance(inputs, torch.Tensor)
        return share_batch(inputs, targets, self._parts.mesh, self._parts.tokens.end)

    def _on_device(self, pair: Pair) -> Pair:
        """`pair` on the device. The host does not wait for the copy from pinned memory."""
        inputs, targets = pair
        device = self._parts.mesh.device
        return inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


def rows_of(parts: TrainerParts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """This data rank's rows of the global batch, micro-batch by micro-batch: row = (micro-batch · D + data rank) · size + i.

    On a grid of tensor ranks its rows divide the sequences of each micro-batch; where there are several grids, those of all.
    None for a parameter server.
    """
    batch = parts.batch
    if parts.mesh.serves:
        return np.empty(0, dtype=np.int64)
    rows = np.arange(batch.global_batch).reshape(batch.microbatches, batch.data, batch.micro_batch)
    own = rows[:, parts.mesh.index("data")]
    division = parts.mesh.layout.division
    if division.rows > 1:
        row = parts.mesh.index(TENSOR_DEPTH) * division.columns + parts.mesh.index(TENSOR_ROW)
        own = np.split(own, division.rows, axis=1)[row]
    return own.reshape(-1)


def _step_seed(seed: int, step: int, replica: int, pipeline_rank: int = 0) -> int:
    """Randomness within a step is a function of these, so that a resumed run draws the same. Tensor ranks draw alike.

    Ranks of a pipeline draw their own: with the same words each would mask the units that the one before it masks.
    """
    where = (seed, step, replica, pipeline_rank) if pipeline_rank else (seed, step, replica)
    digest = hashlib.blake2b("/".join(map(str, where)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
