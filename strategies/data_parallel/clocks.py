"""Workers' clocks at a parameter server: who may pull, when all of them meet, and the order of what took effect. Imports no torch.

A worker's clock is its number of pushes. It may pull at clock c if every worker has pushed at least c − `ahead` times (stale synchronous
parallel; Ho et al., NIPS 2013, section 2). The slowest worker never waits, so that no two wait for each other.

At a *meeting* each worker pulls only when all have pushed as often as it has: a barrier at that clock (bulk synchronous parallel; Valiant
1990). The values are then those after exactly these pushes, which is what a checkpoint needs. All workers name the meetings that they know
of beforehand. One that is wanted at once, to stop, is at the newest step that a worker has begun, because none is beyond its end.
With `ahead` 0 every clock is a meeting.

A worker that is gone is waited for no more: the rules are those of the workers that are left. Its pushes stay. No meeting is before its
newest push, because it would have waited there, or had begun that step when the meeting was wanted.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


class Meeting(IntEnum):
    """Which workers are at a clock together. `NONE` is falsy. Servers send the number."""

    NONE = 0
    ALL = 1
    PARTIAL = 2  # all that are left, where one is gone


@dataclass(frozen=True)
class Entry:
    """One line of a server's record: `worker` pushed for the `clock`-th time (from 1), or pulled after that many pushes, or was gone.

    Lines are in the order in which they took effect.
    """

    kind: Literal["push", "pull", "leave"]
    worker: int
    clock: int


class Clocks:
    """The clocks of `workers` at one server. `record` grows by two lines per worker and step, and is kept only if it is set to a list."""

    def __init__(self, workers: int, ahead: int) -> None:
        self.record: list[Entry] | None = None
        self._met = (-1, Meeting.NONE)  # the newest meeting and its clock
        self._ahead = ahead
        self._pushed = [0] * workers
        self._asked = [-1] * workers  # the clock at which each has asked for values last
        self._waiting: dict[int, bool] = {}  # worker → whether it asked for a meeting
        self._wanted: int | None = None  # the clock of a meeting that was wanted at once
        self._present = list(range(workers))  # the workers that are not gone

    def leave(self, worker: int) -> None:
        """`worker` is gone."""
        self._present.remove(worker)
        self._waiting.pop(worker, None)
        self._write("leave", worker)

    @property
    def pushes(self) -> int:
        """Of all workers, also of those that are gone."""
        return sum(self._pushed)

    def push(self, worker: int) -> None:
        """A push of `worker` took effect."""
        self._pushed[worker] += 1
        self._write("push", worker)

    def ask(self, worker: int, meets: bool) -> None:
        """`worker` asks for values, at its clock; `meets`: only together with all others."""
        self._asked[worker] = self._pushed[worker]
        self._waiting[worker] = meets

    def meet_soon(self) -> None:
        """Let all workers meet at the earliest clock that none of them has passed."""
        if self._wanted is None:
            self._wanted = max(*map(self._begun, self._present), *self._pushed)

    def answers(self) -> list[tuple[int, Meeting]]:
        """The workers that get values now, and who meets. Each is returned once."""
        clock = min(self._pushed[worker] for worker in self._present)
        if self._all_wait_at(clock) and any(map(self._meets, self._waiting)):
            meeting = Meeting.ALL if len(self._present) == len(self._pushed) else Meeting.PARTIAL
            self._met = (clock, meeting)
            if self._wanted == clock:
                self._wanted = None
            found = [(worker, meeting) for worker in self._waiting]
        else:
            free = (worker for worker in self._waiting if not self._meets(worker))
            found = [(worker, Meeting.NONE) for worker in free if self._pushed[worker] - clock <= self._ahead]
        for worker, _ in found:
            del self._waiting[worker]
            self._write("pull", worker)
        return found

    def waits(self, worker: int) -> bool:
        """Whether `worker` is between its newest push and its next step. Its first step may begin without values from here."""
        return worker in self._waiting or self._asked[worker] < self._pushed[worker] > 0

    def passed(self, clock: int) -> bool:
        """Whether every worker that is left has pushed `clock` times, and has asked for values after that."""
        return min(self._asked[worker] for worker in self._present) >= clock

    def meeting(self, clock: int) -> Meeting:
        """Who met at `clock`, if that was the newest meeting."""
        return self._met[1] if self._met[0] == clock else Meeting.NONE

    def _begun(self, worker: int) -> int:
        """The newest step that the worker may have begun: after it has its values it is in the next one."""
        return self._pushed[worker] + (not self.waits(worker))

    def _meets(self, worker: int) -> bool:
        return self._ahead == 0 or self._waiting[worker] or self._pushed[worker] == self._wanted

    def _all_wait_at(self, clock: int) -> bool:
        here = {self._pushed[worker] for worker in self._present} == {clock}
        return here and len(self._waiting) == len(self._present)

    def _write(self, kind: Literal["push", "pull", "leave"], worker: int) -> None:
        if self.record is not None:
            self.record.append(Entry(kind, worker, self._pushed[worker]))
