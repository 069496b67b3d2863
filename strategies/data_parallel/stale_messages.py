"""What a worker with a clock of its own asks of a parameter server: to take its gradients, to send values, or to expect no more of it.

A request is one message, tagged `REQUEST`. Gradients and values follow with
torch's default tag, 0, in the order of the messages of `parameter_server.py`.
"""

from dataclasses import astuple, dataclass
from typing import Final

import torch

from .key_assignment import REQUEST_NUMBERS

#: Tags of a request, and of the first server's answer before the values.
REQUEST: Final = 1
ANSWER: Final = 2
#: The number of a worker's last request, in the place of 1 for a push and 0 for values.
_ENDS: Final = 2.0


@dataclass(frozen=True)
class Push:
    """One worker's step, in numbers.

    The server multiplies its gradients by `factor`. `loss`: its summand of the step's loss; `squares`: the squared norm of its own mean
    gradient; `rate`: its steps per second, by the step before; `meets`: whether it wants all workers to meet soon.
    """

    factor: float
    loss: float
    squares: float
    rate: float
    meets: bool


@dataclass(frozen=True)
class Request:
    """Request of `worker` at its `clock`, which a push counts already. Without a `push` it asks for values, and `meets` says how.

    `ends`: it is the worker's last one, and asks for nothing.
    """

    worker: int
    clock: int
    meets: bool = False
    push: Push | None = None
    ends: bool = False

    def numbers(self) -> torch.Tensor:
        """As a message [REQUEST_NUMBERS] in fp64, in which whole numbers below 2⁵³ are exact."""
        push = self.push or Push(0.0, 0.0, 0.0, 0.0, False)
        kind = _ENDS if self.ends else float(self.push is not None)
        numbers = (self.worker, self.clock, self.meets, kind, *astuple(push))
        return torch.tensor(numbers, dtype=torch.float64)

    @classmethod
    def of(cls, numbers: torch.Tensor) -> "Request":
        worker, clock, meets, kind, factor, loss, squares, rate, soon = numbers.tolist()
        push = Push(factor, loss, squares, rate, bool(soon)) if kind == 1 else None
        return cls(int(worker), int(clock), bool(meets), push, kind == _ENDS)


def empty_request() -> torch.Tensor:
    """Memory for a request."""
    return torch.empty(REQUEST_NUMBERS, dtype=torch.float64)
