"""What a worker with a clock of its own asks of a parameter server: to take its gradients, or to send values.

A request is one message, tagged `REQUEST`, by which a server waits for whichever worker comes next. Gradients and values follow with
torch's default tag, 0, in the order of the messages of `parameter_server.py`.
"""

from dataclasses import astuple, dataclass
from typing import Final

import torch

from .key_assignment import REQUEST_NUMBERS

#: Tags of a request, and of the first server's answer before the values.
REQUEST: Final = 1
ANSWER: Final = 2


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
    """Request of `worker` at its `clock`, which a push counts already. Without a `push` it asks for values, and `meets` says how."""

    worker: int
    clock: int
    meets: bool = False
    push: Push | None = None

    def numbers(self) -> torch.Tensor:
        """As a message [REQUEST_NUMBERS] in fp64, in which whole numbers below 2⁵³ are exact."""
        push = self.push or Push(0.0, 0.0, 0.0, 0.0, False)
        numbers = (self.worker, self.clock, self.meets, self.push is not None, *astuple(push))
        return torch.tensor(numbers, dtype=torch.float64)

    @classmethod
    def of(cls, numbers: torch.Tensor) -> "Request":
        worker, clock, meets, pushes, factor, loss, squares, rate, soon = numbers.tolist()
        push = Push(factor, loss, squares, rate, bool(soon)) if pushes else None
        return cls(int(worker), int(clock), bool(meets), push)


def empty_request() -> torch.Tensor:
    """Memory for a request."""
    return torch.empty(REQUEST_NUMBERS, dtype=torch.float64)
