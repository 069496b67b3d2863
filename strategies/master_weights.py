"""Masters: the values that the optimizer updates. They are taken before the model's own are rounded to the dtype that computes.

bf16 keeps 8 bits of a number: a master that is made from a rounded value is up to 0.4% off, and another one than its file's.
"""

import torch

from .data_parallel.buckets import chunk
from .mesh import Mesh
from .param_shard import Parameter
from .precision import Precision


class Masters:
    """This rank's masters by parameter name, between `keep`, which is called where values come in, and `take`.

    With `cut` a rank keeps its own chunk of dimension 0 alone: no whole model in the wider dtype ever exists.
    """

    def __init__(self, mesh: Mesh, precision: Precision, cut: bool = False) -> None:
        self._mesh, self._precision, self._cut = mesh, precision, cut
        self._kept: dict[str, torch.Tensor] = {}

    def keep(self, parameter: Parameter, values: torch.Tensor) -> None:
        """Note the unrounded `values` of `parameter`, in the shape of its local tensor."""
        if self._precision.mixed:
            own = self._own(parameter, values).to(self._mesh.device, self._precision.master, copy=True)
            self._kept[parameter.name] = own.contiguous()  # files may hold a matrix transposed

    def take(self, parameter: Parameter) -> torch.Tensor:
        """The master of `parameter`, once. Where one dtype does both, the parameter's memory itself."""
        return self._kept.pop(parameter.name) if self._precision.mixed else self._own(parameter, parameter.local)

    def _own(self, parameter: Parameter, values: torch.Tensor) -> torch.Tensor:
        if not self._cut:
            return values
        replicas = parameter.replicas
        _, start, length = chunk(values, self._mesh.size(replicas), self._mesh.index(replicas))
        return values.narrow(0, start, length)
