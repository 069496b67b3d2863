"""Measures how long each action of one step takes, and the share of the step in which a rank computes nothing: the bubble.

bubble_measured of a rank = 1 − (time within its forward and backward passes) / (time of the schedule)

The time of the schedule runs from the moment when all ranks of the pipeline are about to begin to the moment when all have ended. A
barrier before and after makes it one time, the makespan, though the ranks' clocks are not synchronised. An action's time is that of
torch's `forward_one_chunk`, `backward_one_chunk` or `backward_weight_one_chunk`; the last stage's loss is added to its forward
pass. Collectives of other axes inside an action are work. Waiting for the pipeline's neighbours is bubble, and so is the overhead
of the schedule itself. CPU time is read with `perf_counter`, CUDA time with events on the stream, without a synchronisation between
the two barriers.

Only a measured step has this cost: the stages' methods are replaced for its duration.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from ..mesh import Mesh
from ..telemetry.current import wait_on
from ..telemetry.device_clock import Clock
from .schedule_order import Action, Kind, Order
from .simulator import simulate


@dataclass(frozen=True)
class Bubble:
    """Idle shares of the step: this rank's as measured, and its whole pipeline's if messages and the schedule itself took no time."""

    measured: float
    simulated: float


@dataclass(frozen=True)
class Measured:
    """Durations in seconds, one per action, for a simulation without communication."""

    seconds: Mapping[Action, float]
    communication: float = 0.0

    def of(self, action: Action) -> float:
        return self.seconds.get(action, self.communication)


@dataclass
class BubbleTimer:
    """Times the actions of one rank. `laps` are in the order in which they ran.

    An action may have several laps: a loss is one of its forward pass, and of two passes that run by turns each turn is one.
    """

    clock: Clock
    laps: list[tuple[Action, Any, Any]] = field(default_factory=list)
    whole: tuple[Any, Any] | None = None
    _running: Action | None = None
    _since: Any = None

    @contextmanager
    def running(self, stages: Sequence[Any], mesh: Mesh) -> Iterator[None]:
        """Time the passes of `stages` inside. Collective over the pipeline."""
        with ExitStack() as stack:
            for stage in stages:
                for name, timed in self._timed(stage).items():
                    setattr(stage, name, timed)
                    stack.callback(delattr, stage, name)
            _meet(mesh)
            start = self.clock.now()
            yield
            _meet(mesh)
            self.whole = (start, self.clock.now())

    def loss(self, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """`loss`, with its time added to the forward pass before it."""

        def timed(*args: Any) -> torch.Tensor:
            forward = next((action for action, _, _ in reversed(self.laps) if action.kind == "F"), None)
            return loss(*args) if forward is None else self._run_timed(forward, loss, *args)

        return timed

    def capture(self) -> Action | None:
        """The action that runs."""
        return self._running

    def restore(self, state: Action | None) -> None:
        """The action `state` runs from now on; None: the schedule itself."""
        if state is self._running is None:
            return
        now = self.clock.now()
        if self._running is not None:
            self.laps.append((self._running, self._since, now))
        self._running, self._since = state, now

    @property
    def seconds(self) -> dict[Action, float]:
        """How long each action took."""
        found: dict[Action, float] = {}
        for action, start, end in self.laps:
            found[action] = found.get(action, 0.0) + self.clock.seconds(start, end)
        return found

    def bubble(self, order: Order, mesh: Mesh) -> Bubble:
        """The bubble of the step that was timed, which ran `order`; collective over the pipeline."""
        assert self.whole is not None
        mine = self.seconds
        everyone: list[dict[Action, float]] = [{}] * mesh.size("pipeline")
        dist.all_gather_object(everyone, mine, group=mesh.group("pipeline"))
        replayed = simulate(order, Measured({a: s for seconds in everyone for a, s in seconds.items()}))
        return Bubble(1 - sum(mine.values()) / self.clock.seconds(*self.whole), replayed.bubble)

    def _timed(self, stage: Any) -> dict[str, Callable[..., Any]]:
        number = stage.stage_index
        forward, backward = stage.forward_one_chunk, stage.backward_one_chunk
        weight: Any = getattr(stage, "backward_weight_one_chunk", None)  # of stages that can split a backward pass

        def timed_forward(microbatch: int, *args: Any, **kwargs: Any) -> Any:
            return self._run_timed(Action("F", number, microbatch), forward, microbatch, *args, **kwargs)

        def timed_backward(microbatch: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
            kind: Kind = "B" if full_backward else "I"
            kwargs["full_backward"] = full_backward
            return self._run_timed(Action(kind, number, microbatch), backward, microbatch, *args, **kwargs)

        def timed_weight(microbatch: int, *args: Any, **kwargs: Any) -> Any:
            return self._run_timed(Action("W", number, microbatch), weight, microbatch, *args, **kwargs)

        found: dict[str, Callable[..., Any]] = {
            "forward_one_chunk": timed_forward,
            "backward_one_chunk": timed_backward,
        }
        return found if weight is None else {**found, "backward_weight_one_chunk": timed_weight}

    def _run_timed(self, action: Action, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.restore(action)
        result = run(*args, **kwargs)
        self.restore(None)
        return result


def _meet(mesh: Mesh) -> None:
    """Wait for the pipeline's other ranks. Communication counters do not count this barrier."""
    cuda = mesh.device.type == "cuda"
    group, devices = mesh.group("pipeline"), [mesh.device.index] if cuda else None
    wait_on(lambda: dist.barrier(group, device_ids=devices), "barrier", group)
