"""Callbacks around a training step: the hooks of a `Callback`, in the order in which the loop calls them.

`assemble.py` alone decides the order of the callbacks. Each hook runs on the training thread, on all ranks alike.
"""

from collections.abc import Sequence

from ...messages.stop_request import StopRequest
from ..step_record import StepRecord, StepStats


class Callback:
    """Each hook does nothing. A callback overrides those that it needs."""

    def start(self) -> None:
        """Before the first step. It may restore a later step."""

    def before_step(self, step: int) -> None:
        """Before a step. Its time begins after this."""

    def before_serving(self, step: int) -> None:
        """Only where workers have clocks of their own: before the step, in which their pushes may change the state at any time."""

    def before_forward(self, step: int) -> None:
        """The batch is on the device. The forward and backward passes of all micro-batches come next."""

    def after_backward(self, step: int) -> None:
        """The passes have run. Gradients are not yet reduced over the data ranks."""

    def before_push(self, step: int, loss: float, grad_norm: float) -> None:
        """Only on a worker with a clock of its own: its mean loss and the norm of its mean gradient, which no server has yet."""

    def meets(self, step: int) -> bool:  # noqa: ARG002
        """Whether all ranks must be at the end of the step together, where workers have clocks of their own."""
        return False

    def after_reduce(self, step: int) -> None:
        """Gradients are reduced. The collective over all ranks is next: the sum of their losses and norms."""

    def before_update(self, stats: StepStats) -> None:
        """After the collective over all ranks. Gradients are not yet clipped, and parameters not yet changed."""

    def after_update(self, step: int) -> None:
        """New parameters are published, or were skipped. The step's time ends after this."""

    def after_step(self, record: StepRecord) -> None:
        """The step is reported."""

    def finish(self, step: int, stop: StopRequest) -> None:
        """`step` was the last one. `stop` is empty after the last step of the spec."""

    def before_return(self, step: int) -> None:
        """Only where workers have clocks of their own: the run ends at a meeting from which a worker is missing, for it to return.

        What follows the step is done after that. Nothing may be sent to all ranks.
        """

    def close(self) -> None:
        """Always called in the end, also if the training failed."""


class Callbacks:
    """Calls each hook of all callbacks, in the order given."""

    def __init__(self, ordered: Sequence[Callback]) -> None:
        self.ordered = tuple(ordered)

    def start(self) -> None:
        for callback in self.ordered:
            callback.start()

    def before_step(self, step: int) -> None:
        for callback in self.ordered:
            callback.before_step(step)

    def before_serving(self, step: int) -> None:
        for callback in self.ordered:
            callback.before_serving(step)

    def before_forward(self, step: int) -> None:
        for callback in self.ordered:
            callback.before_forward(step)

    def after_backward(self, step: int) -> None:
        for callback in self.ordered:
            callback.after_backward(step)

    def before_push(self, step: int, loss: float, grad_norm: float) -> None:
        for callback in self.ordered:
            callback.before_push(step, loss, grad_norm)

    def meets(self, step: int) -> bool:
        return any(callback.meets(step) for callback in self.ordered)

    def after_reduce(self, step: int) -> None:
        for callback in self.ordered:
            callback.after_reduce(step)

    def before_update(self, stats: StepStats) -> None:
        for callback in self.ordered:
            callback.before_update(stats)

    def after_update(self, step: int) -> None:
        for callback in self.ordered:
            callback.after_update(step)

    def after_step(self, record: StepRecord) -> None:
        for callback in self.ordered:
            callback.after_step(record)

    def finish(self, step: int, stop: StopRequest) -> None:
        for callback in self.ordered:
            callback.finish(step, stop)

    def before_return(self, step: int) -> None:
        for callback in self.ordered:
            callback.before_return(step)

    def close(self) -> None:
        for callback in self.ordered:
            callback.close()
