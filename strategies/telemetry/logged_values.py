"""Values that a model of the user's own logs while it trains: each rank sums those of a step on their device, without a wait for it.

`logged_means.py` makes means of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, SupportsFloat, cast

import torch
from torch.distributed.tensor import DTensor

#: Maximum number of names: each is two numbers in every step's collective.
MOST_NAMES: Final = 64

Number = float | torch.Tensor


class LoggedValues:
    """The values of one step on this rank, each once.

    Only those of a micro-batch's forward pass count: not what a validation logs, a forward pass that runs again to save memory, or
    the one by which a pipeline learns the shapes of its stages.
    """

    def __init__(self) -> None:
        self._open = False
        self.sums: dict[str, tuple[Number, int]] = {}
        """Name → the sum of its values, and their number."""

    def begin(self) -> None:
        """Forget the values of the step before."""
        self.sums = {}

    @contextmanager
    def microbatch(self) -> Iterator[None]:
        """Context of the forward pass of one micro-batch."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def capture(self) -> bool:
        """Whether the values of the pass that runs count: one of two that run by turns (`strategies/turns.py`)."""
        return self._open

    def restore(self, state: bool) -> None:
        """The pass of which `capture` has returned `state` runs from now on."""
        self._open = state

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, name: str, value: SupportsFloat | torch.Tensor) -> None:
        """Count a value of the step. Raises ValueError, TypeError for what is no scalar with a name."""
        if isinstance(value, DTensor) and value.numel() == 1:
            # Of a sharded parameter: all ranks of its tensor group log it. Also where it does not count, because a
            # pass that runs again has to have the collectives of the first one.
            value = cast(DTensor, value.detach()).full_tensor()
        if not self._open:
            return
        number = _number(name, value)
        if name not in self.sums and len(self.sums) >= MOST_NAMES:
            raise ValueError(f"a model logs at most {MOST_NAMES} names, and {name!r} is one more")
        total, count = self.sums.get(name, (0.0, 0))
        self.sums[name] = (total + number, count + 1)


def _number(name: str, value: SupportsFloat | torch.Tensor) -> Number:
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise ValueError(f"{ascii(name)[:80]} is not a name of 1 to 200 printable characters")
    if not isinstance(value, torch.Tensor):
        return float(value)
    if value.numel() != 1:
        raise ValueError(f"{name!r} is a tensor of {value.numel()} elements; log a scalar, such as its mean")
    scalar = value.detach().reshape(())
    return float(scalar) if scalar.device.type == "cpu" else scalar.double()
