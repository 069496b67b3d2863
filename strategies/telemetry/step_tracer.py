"""A step trace: what the training thread does from a step's begin to its end, in spans.

At each moment of a step one category counts: that of the innermost span that is open, and `other` where none is. So the categories of a
step sum to its length, whatever is left out. A step that is not traced pays for one look at `on` per span. Nothing of torch's is kept,
neither tensor nor work: only moments, names and numbers. Moments are the clock's (`device_clock.py`): on CUDA events on the stream that
computes. A step takes moments and reads none: reading waits for the device, so it comes after the last traced step. Strategies find
the tracer in `current.py`.

In the background a collective lasts from its start until the training thread has waited for it: it may have been done sooner, which is
known of some alone (`current.py`, `done_at`). What is compiled is not looked into.

Two passes that run by turns on two threads (`strategies/turns.py`) are one training thread here. A span is cut where its pass hands over:
each of its pieces is a span.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, get_args

import torch.distributed as dist

from .device_clock import Clock, HostClock

T = TypeVar("T")

Category = Literal["forward", "backward", "weight", "optimizer", "send", "receive", "collective", "data", "other"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

#: The lane of what the training thread does itself; the others are mesh axes.
TRAINING: Final = "training"

#: Who takes part: a process group, its name or a mesh axis.
Group = dist.ProcessGroup | str


@dataclass(frozen=True)
class Span:
    """Seconds from the step's begin; in the background negative where it was started in the step before."""

    lane: str
    category: Category
    name: str
    start: float
    end: float
    microbatch: int | None = None
    stage: int | None = None


@dataclass(frozen=True)
class Recorded:
    """One step. `began`: by this rank's host clock (`time.perf_counter`); `sums`: seconds by category, which make up `seconds`."""

    began: float
    seconds: float
    sums: Mapping[Category, float]
    spans: Sequence[Span]


@dataclass(eq=False)
class _Open:
    """A span that has begun, or goes on, at `since` of the clock."""

    category: Category
    name: str
    microbatch: int | None
    stage: int | None
    since: Any


@dataclass(frozen=True)
class RecordedStep:
    """The moments of one step. `turns`: until when which category counted; `spans`: lane, span, its end."""

    clock: Clock
    host_began: float
    began: Any
    ended: Any
    turns: Sequence[tuple[Any, Category]]
    spans: Sequence[tuple[str, _Open, Any]]

    def read(self) -> Recorded:
        """The step's times. Waits until the device has passed them."""
        seconds = self.clock.seconds
        sums: dict[Category, float] = dict.fromkeys(CATEGORIES, 0.0)
        since = self.began
        for until, category in self.turns:
            sums[category] += seconds(since, until)
            since = until
        spans = [
            Span(
                lane,
                one.category,
                one.name,
                seconds(self.began, one.since),
                seconds(self.began, end),
                one.microbatch,
                one.stage,
            )
            for lane, one, end in self.spans
        ]
        return Recorded(self.host_began, seconds(self.began, self.ended), sums, spans)


class StepTracer:
    """Records the training thread while it is `on`, from `begin` to `stop`."""

    def __init__(self) -> None:
        self.on = False
        self.clock: Clock = HostClock()
        self._axes: Mapping[str, str] = {}
        self._clear()

    def _clear(self) -> None:
        self._open: list[_Open] = []
        self._turns: list[tuple[Any, Category]] = []  # until when which category counted
        self._ended: list[tuple[str, _Open, Any]] = []  # lane, span, its end

    def begin(self, clock: Clock, axes: Mapping[str, str]) -> None:
        """A step begins. `axes`: names of groups → mesh axis; others have their own name, the default one `world`."""
        self._clear()
        self.clock, self._axes = clock, axes
        self._host_began, self._began = HostClock().now(), clock.now()
        self.on = True

    def stop(self) -> RecordedStep:
        """The step that ends now. Waits for nothing."""
        self.on = False
        ended = self.clock.now()
        self._turns.append((ended, self._open[-1].category if self._open else "other"))
        taken = RecordedStep(self.clock, self._host_began, self._began, ended, self._turns, self._ended)
        self._clear()
        return taken

    def end(self) -> Recorded:
        """The times of the step that ends now."""
        return self.stop().read()

    def span(
        self, category: Category, name: str, microbatch: int | None = None, stage: int | None = None
    ) -> AbstractContextManager[None]:
        """A span around what is done within; nothing while it is off."""
        return _Within(self, category, name, microbatch, stage) if self.on else _NOTHING

    def now(self) -> Any:
        """When something starts that goes on in the background; None while it is off."""
        return self.clock.now() if self.on else None

    def collective(
        self,
        wait: Callable[[], T],
        what: str,
        group: Group | None,
        since: Any,
        done: Callable[[], Any] | None = None,
    ) -> T:
        """The result of `wait`, for the collective `what` over `group` (None: the world).

        It was started at `since` if that is known. After the wait `done` returns when it was over, None if that is not known.
        """
        axis = self.axis(group)
        with self.span("collective", f"{what} {axis}"):
            result = wait()
        self.record_async(axis, "collective", what, since, done() if done is not None else None)
        return result

    def record_async(self, lane: str, category: Category, name: str, since: Any, until: Any = None) -> None:
        """What was started at `since` is done; nothing where that is None. It was done at `until` if that is known, else now."""
        if self.on and since is not None:
            until = self.clock.now() if until is None else until
            self._ended.append((lane, _Open(category, name, None, None, since), until))

    def capture(self) -> tuple[_Open, ...]:
        """The open spans of the pass that runs."""
        return tuple(self._open)

    def restore(self, state: Sequence[_Open]) -> None:
        """The pass with these open spans runs from now on. Those that only the one before has are cut here."""
        if not self.on:
            return
        now = self.clock.now()
        self._turns.append((now, self._open[-1].category if self._open else "other"))
        self._ended += [(TRAINING, replace(one), now) for one in reversed(self._open) if one not in state]
        for one in state:
            if one not in self._open:
                one.since = now
        self._open = list(state)

    def axis(self, group: Group | None) -> str:
        """The mesh axis of a group; its own name where it has none."""
        if group is None:
            return "world"
        name = group if isinstance(group, str) else group.group_name
        return self._axes.get(name, name)

    def enter(self, category: Category, name: str, microbatch: int | None, stage: int | None) -> None:
        now = self.clock.now()
        self._turns.append((now, self._open[-1].category if self._open else "other"))
        self._open.append(_Open(category, name, microbatch, stage, now))

    def leave(self) -> None:
        """A span that outlasts the recording is none."""
        if self.on and self._open:
            now = self.clock.now()
            one = self._open.pop()
            self._turns.append((now, one.category))
            self._ended.append((TRAINING, one, now))


class _Within:
    def __init__(self, tracer: StepTracer, *about: Any) -> None:
        self._tracer, self._about = tracer, about

    def __enter__(self) -> None:
        self._tracer.enter(*self._about)

    def __exit__(self, *_: object) -> None:
        self._tracer.leave()


_NOTHING: Final = nullcontext()
