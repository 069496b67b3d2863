"""Versions of a stage's weights: the newest one, which the optimizer updates, and those before it. A version's age is 0 for the newest.

PipeDream-2BW (2006.09503, section 3.1) has two: the passes of a global batch all use one version. The older version belongs to the batch
whose gradients come next. The newest belongs to the batch after it, of which some passes run already. PipeDream (1806.03377, section 3.3)
has one for each minibatch in flight, with vertical sync on every rank as many as on the first.

Memory that living graphs refer to is never written. So the buffers change places before each update, and the optimizer writes the one
whose batch is complete. That costs a copy of the weights. Memory beside what 1F1B holds: cΨ per older version, for c bytes per element.
"""

from collections.abc import Sequence

import torch

from ..param_shard import Parameter, ParamShard

#: Names of the older versions among the tensors of a checkpoint begin with this.
PREVIOUS = "previous."


class WeightVersions:
    """`weights`: each parameter of this rank with its whole shard, as plain tensors. `older`: the older versions, as shards to save.

    Where a checkpoint has fewer versions of a parameter, its oldest one stands for those before it, as W(0) does where a run begins:
    W(−1) = W(0). So a parameter's versions never go back in time from one step to the next.
    """

    def __init__(self, weights: Sequence[tuple[Parameter, ParamShard]], versions: int = 2) -> None:
        self._weights, self._versions = weights, versions
        self._buffers = [_buffers(parameter.value.data, versions) for parameter, _ in weights]
        self._newest = self._used = 0  # their places among each parameter's buffers
        # Where one dtype does both, the optimizer updates the parameter's own memory (`Masters.take`).
        self._is_master = [shard.tensor.dtype == parameter.value.dtype for parameter, shard in weights]
        self._saved = [
            [shard.like(_name(shard, age), _flat(buffers[-age]), _newer(shard, age)) for age in range(1, versions)]
            for (_, shard), buffers in zip(weights, self._buffers, strict=True)
        ]
        self.older = [shard for shards in self._saved for shard in shards]

    def begin(self) -> None:
        """Before the first pass: where no older version was restored, its values are NaN, and it becomes the newest one's copy."""
        for buffers in self._buffers:
            newest = buffers[self._newest]
            for older in buffers:
                if torch.isnan(older).all():
                    older.copy_(newest)

    def use(self, age: int) -> None:
        """Let the model compute with the version of this age."""
        place = self._place(age)
        if place == self._used:
            return
        self._used = place
        for (parameter, _), buffers in zip(self._weights, self._buffers, strict=True):
            parameter.value.data = buffers[place]

    def turn(self) -> None:
        """Before an update: each version is one older, and a copy of the newest, in the place of the oldest, is what is updated."""
        if self._versions == 1:
            return
        oldest = self._place(self._versions - 1)
        for buffers in self._buffers:
            buffers[oldest].copy_(buffers[self._newest])
        self._newest = oldest
        self.use(0)
        for (_, shard), is_master, saved, buffers in zip(
            self._weights, self._is_master, self._saved, self._buffers, strict=True
        ):
            for age, one in enumerate(saved, start=1):
                one.tensor.data = _flat(buffers[self._place(age)])
            if is_master:
                shard.tensor.data = _flat(buffers[self._newest])

    def _place(self, age: int) -> int:
        """The place of the version of this age among the buffers."""
        return (self._newest - age) % self._versions


def _buffers(newest: torch.Tensor, versions: int) -> list[torch.Tensor]:
    """The newest version's memory, and memory of NaN for the others."""
    return [newest, *(torch.full_like(newest, torch.nan) for _ in range(versions - 1))]


def _name(shard: ParamShard, age: int) -> str:
    """Its name among the tensors of a checkpoint: `NAME` of the newest, `previous.NAME`, `previous.2.NAME`, …"""
    if age == 0:
        return shard.name
    return PREVIOUS + shard.name if age == 1 else f"{PREVIOUS}{age}.{shard.name}"


def _newer(shard: ParamShard, age: int) -> tuple[str, ...]:
    """The names of the newer versions, the oldest of them first."""
    return tuple(_name(shard, newer) for newer in reversed(range(age)))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same memory, at least one-dimensional as a shard's is."""
    return tensor.data.reshape(1) if tensor.dim() == 0 else tensor.data
