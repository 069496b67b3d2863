"""Two versions of a stage's weights: the newest one, which the optimizer updates, and the one before it.

PipeDream-2BW (2006.09503, section 3.1): the passes of a global batch all use one version. The older version belongs to the batch whose
gradients come next. The newest belongs to the batch after it, of which some passes run already.

Memory that living graphs refer to is never written. So the two buffers change places before each update, and the optimizer writes the
buffer whose batch is complete. That costs a copy of the weights. Memory beside what 1F1B holds: cΨ for c bytes per element.
"""

from collections.abc import Sequence

import torch

from ..param_shard import Parameter, ParamShard

#: Names of the older versions among the tensors of a checkpoint begin with this.
PREVIOUS = "previous."


class WeightVersions:
    """`weights`: each parameter of this rank with its whole shard, as plain tensors. `older`: the older version, as shards to save.

    Where a checkpoint has no older version, both are what it has: a run that changes to this schedule begins with W(−1) = W(0).
    """

    def __init__(self, weights: Sequence[tuple[Parameter, ParamShard]]) -> None:
        self._weights = weights
        self._buffers = [
            [parameter.value.data, torch.full_like(parameter.value.data, torch.nan)] for parameter, _ in weights
        ]
        self._newest = self._used = 0  # their places in each pair of buffers
        # Where one dtype does both, the optimizer updates the parameter's own memory (`Masters.take`).
        self._is_master = [shard.tensor.dtype == parameter.value.dtype for parameter, shard in weights]
        self.older = [
            shard.like(PREVIOUS + shard.name, _flat(buffers[1]), otherwise=shard.name)
            for (_, shard), buffers in zip(weights, self._buffers, strict=True)
        ]

    def begin(self) -> None:
        """Before the first pass: where no older version was restored, its values are NaN, and it becomes the newest one's copy."""
        for newest, older in self._pairs():
            if torch.isnan(older).all():
                older.copy_(newest)

    def use(self, newest: bool) -> None:
        """Let the model compute with the newest version, or with the older one."""
        place = self._newest if newest else 1 - self._newest
        if place == self._used:
            return
        self._used = place
        for (parameter, _), buffers in zip(self._weights, self._buffers, strict=True):
            parameter.value.data = buffers[place]

    def turn(self) -> None:
        """Before an update: what was the newest version becomes the older one, and its copy is what the optimizer updates."""
        for newest, older in self._pairs():
            older.copy_(newest)
        self._newest = 1 - self._newest
        self.use(newest=True)
        pairs = zip(self._weights, self._is_master, self.older, self._pairs(), strict=True)
        for (_, shard), is_master, saved, (newest, older) in pairs:
            saved.tensor.data = _flat(older)
            if is_master:
                shard.tensor.data = _flat(newest)

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The newest and the older buffer of each parameter."""
        return [(buffers[self._newest], buffers[1 - self._newest]) for buffers in self._buffers]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same memory, at least one-dimensional as a shard's is."""
    return tensor.data.reshape(1) if tensor.dim() == 0 else tensor.data
