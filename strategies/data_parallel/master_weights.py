"""Master weights: the values that the optimizer updates, taken before the model's own are rounded to the compute dtype.

bf16 keeps 8 bits of a number: a master made from a rounded value would be up to 0.4% off, and differ from the one in its file.
"""

import torch

from ..activation_memory.state_file import StateFile
from ..mesh import Mesh
from ..param_shard import Parameter
from ..precision import Precision
from .buckets import chunk


class Masters:
    """This rank's masters by parameter name, from `keep`, called when values are loaded, to `take`.

    With `cut` a rank keeps only its own chunk of dimension 0: a whole model in the wider dtype never exists. `on_host` is the share of
    them that stays on the host; where one dtype does both, none. If all of them stay there and `file` is given, they are in it.
    """

    def __init__(
        self,
        mesh: Mesh,
        precision: Precision,
        cut: bool = False,
        on_host: float = 0.0,
        file: StateFile | None = None,
    ) -> None:
        self._mesh, self._precision, self._cut = mesh, precision, cut
        self._file = file if on_host == 1 else None
        self._share = on_host if precision.mixed else 0.0
        self._seen = self._moved = 0
        self._kept: dict[str, torch.Tensor] = {}

    def keep(self, parameter: Parameter, values: torch.Tensor) -> None:
        """Keep the unrounded `values` of `parameter`, in the shape of its local tensor."""
        if self._precision.mixed:
            own = self._own(parameter, values)
            if self._file is not None:
                self._kept[parameter.name] = self._file.copy(own, self._precision.master)
                return
            device = torch.device("cpu") if self._share else self._mesh.device
            own = own.to(device, self._precision.master, copy=True)
            self._kept[parameter.name] = own.contiguous()  # files may hold a matrix transposed

    def take(self, parameter: Parameter) -> torch.Tensor:
        """The master of `parameter`; may be called once. If one dtype does both, it is the parameter's memory itself."""
        return self._kept.pop(parameter.name) if self._precision.mixed else self._own(parameter, parameter.local)

    def stays_on_host(self, elements: int) -> bool:
        """Decide where the next `elements` masters are: on the host, unless it would then hold more than its share of all so far.

        Whole parameters are counted: ranks whose parts are of unequal sizes decide alike where replicas of a norm are.
        """
        self._seen += elements
        stays = self._moved + elements <= self._share * self._seen
        self._moved += elements * stays
        return stays

    def _own(self, parameter: Parameter, values: torch.Tensor) -> torch.Tensor:
        if not self._cut:
            return values
        replicas = parameter.replicas
        _, start, length = chunk(values, self._mesh.size(replicas), self._mesh.index(replicas))
        return values.narrow(0, start, length)
