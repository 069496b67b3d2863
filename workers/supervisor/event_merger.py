"""What a gang tells: its ranks' events merged into one story, numbered once and in order.

A step is told when every rank has reported it, and once, though a repaired gang trains some again; what a rank says after a
step is not told before it; a cause is told before the `state` that it brings.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from ..messages.event_buffer import Event, Ranks, Spool, Steps, merged
from ..messages.fault_request import Fault
from .gang_state import HeldEvent, MergerState, Repair
from .policies.failures import Failure


class Story:
    """What must be known to tell the next event of an attempt; what is told lies in the spool."""

    def __init__(self, spool: Spool, world_size: int, submitted_at: float) -> None:
        self.spool = spool
        self.submitted_at = submitted_at
        self.state = "placing"
        self.told_step = 0
        self.first_step_at: float | None = None
        self.repaired: Repair | None = None  # told with the first step after it
        self._steps = Steps(world_size)
        self._held: deque[tuple[int, Event]] = deque()  # told by a rank after a step that others are still to report
        self._told_facts: dict[str, int] = {}  # sort of fact → the newest step of which one was told

    @property
    def ended(self) -> bool:
        """Whether the last event is told."""
        return self.state in ("succeeded", "failed", "cancelled")

    def to_state(self) -> MergerState:
        return MergerState(
            state=self.state,
            newest_step=self.told_step,
            first_step_at=self.first_step_at,
            repair=self.repaired,
            open_steps=self._steps.open,
            held=[HeldEvent(step, dict(event)) for step, event in self._held],
            newest_facts=self._told_facts,
        )

    def resume(self, state: MergerState) -> None:
        """Go on where a predecessor was."""
        self.state, self.told_step, self.first_step_at = state.state, state.newest_step, state.first_step_at
        self.repaired = state.repair
        self._steps.refill(state.open_steps)
        self._held = deque((held.after, cast(Event, held.event)) for held in state.held)
        self._told_facts = state.newest_facts

    def log(self, event: Event) -> None:
        self.spool.add("log", event["data"], event["ts"])

    def step(self, rank: int, event: Event) -> list[Ranks]:
        """One rank's record of a step; returns the steps that this made whole, as their ranks told them."""
        step = int(event["data"]["step"])
        again = event["data"].pop("again", False)
        if rank == 0 and not again:
            self._tell_running(event["ts"], step)
        if step <= self.told_step:  # trained once more after a repair, to the same bits
            return []
        whole = [{rank: event["data"]}] if again else self._steps.add(rank, event["data"])
        for ranks in whole:
            self._tell_step(merged(ranks), event["ts"])
        return [] if again else whole

    def fact(self, event: Event, step: int) -> None:
        """Plan, validation, checkpoint, incident, summary: told as they come, but never before the step that they follow."""
        self._held.append((step, event))
        self._tell_held()

    def again(self, told: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """What rank 0's snapshot remembers, where its own word may have died with it on its way."""
        step = self.told_step
        for kind, data in told:
            event: Event = {"seq": 0, "ts": time.time(), "kind": kind, "data": dict(data) | {"again": True}}
            if kind == "step":
                step = int(data["step"])
                self.step(0, event)
            elif kind != "stopped":
                self.fact(event, step)

    def newest(self, kind: str) -> int:
        """The newest step of which a fact of this sort was told; -1: none was."""
        return self._told_facts.get(kind, -1)

    def rest(self) -> None:
        """At a generation's end: what waited for ranks that will not report any more."""
        for ranks in self._steps.rest():
            self._tell_step(merged(ranks), time.time())
        self._tell_held(all_of_them=True)

    def tell_incident(self, root: Failure, generation: int, log: Sequence[str]) -> None:
        """`log`: the last lines of the rank to blame."""
        incident: dict[str, Any] = {
            "rank": root.rank,
            "node": root.node,
            "message": root.message,
            "traceback": root.traceback,
        }
        incident |= {"generation": generation, "step": self.told_step, "log": list(log)} | root.evidence
        self.spool.add("incident", {"cause": root.cause, **incident})

    def tell_ranks(self, sample: dict[str, Any]) -> None:
        """What each rank did lately."""
        self.spool.add("ranks", sample)

    def tell_fault(self, fault: Fault, what: str) -> None:
        """One that somebody asked for was struck."""
        data = fault.to_json()
        data |= {"fault": data.pop("kind"), "done": True, "message": what, "step": self.told_step}
        self.spool.add("fault", data, urgent=True)

    def tell_state(self, state: str, reason: str, message: str) -> None:
        self.state = state
        self.spool.add("state", {"state": state, "reason": reason, "message": message}, urgent=True)

    def _tell_running(self, ts: float, step: int) -> None:
        """Rank 0 has trained a step: the first one of all, or of a generation. What the dead one still says is neither."""
        if self.first_step_at is None:
            self.first_step_at = ts
            self.tell_state("running", "first_step", "")
        elif self.repaired is not None:
            told = asdict(self.repaired) | {"step": step, "seconds": ts - self.repaired.began}
            del told["began"]
            self.spool.add("repair", told)
            self.tell_state("running", "repaired", _in_words(told))
        self.repaired = None

    def _tell_step(self, record: dict[str, Any], ts: float) -> None:
        self.spool.add("step", record, ts)
        self.told_step = record["step"]
        self._tell_held()

    def _tell_held(self, all_of_them: bool = False) -> None:
        while self._held and (all_of_them or self._held[0][0] <= self.told_step):
            _, event = self._held.popleft()
            data = dict(event["data"])
            data.pop("again", None)
            if not self._is_news(_sort(event["kind"], data), int(data.get("step") or 0)):
                continue
            if event["kind"] == "summary" and self.first_step_at is not None and self.submitted_at:
                data["time_to_first_step_s"] = self.first_step_at - self.submitted_at
            self.spool.add(event["kind"], data, event["ts"])

    def _is_news(self, sort: str, step: int) -> bool:
        """Whether no fact of this sort was told of this step or a later one: a repaired gang tells some again."""
        news = step > self._told_facts.get(sort, -1)
        self._told_facts[sort] = max(step, self._told_facts.get(sort, -1))
        return news


def _sort(kind: str, data: dict[str, Any]) -> str:
    """A step has at most one fact of each kind, but several incidents may be told of it."""
    return f"{kind} {data.get('cause')} {data.get('message')}" if kind == "incident" else kind


def _in_words(told: dict[str, Any]) -> str:
    start = "the newest checkpoint" if told["restored"] is None else f"step {told['restored']}, which was in memory"
    spares = f", spares as ranks {told['spares']}" if told["spares"] else ""
    return f"generation {told['generation']} goes on after {start}{spares}; {told['seconds']:.1f} s were lost"
