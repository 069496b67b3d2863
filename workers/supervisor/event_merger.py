"""A gang's events: those of its ranks merged, numbered once and in order.

A step is emitted once, when every rank that is there has reported it, even if a repaired gang trains it again. An event that a rank
reported after a step is not emitted before that step. A cause is emitted before the `state` that follows from it.
"""

import json
import time
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from ..messages.event import (
    CheckpointEvent,
    FaultEvent,
    IncidentEvent,
    PlanEvent,
    RepairEvent,
    StateEvent,
    StepEvent,
    read,
    to_json,
)
from ..messages.event import Event as OutEvent
from ..messages.event_buffer import Event, Ranks, Spool, Steps, merged
from ..messages.fault_request import Fault
from .gang_state import HeldEvent, MergerState, Repair
from .policies.failures import Failure

#: Incidents whose newest step is known. Their messages may differ with each step, and a repaired gang repeats only the latest of them.
_MOST_INCIDENTS: Final = 256
#: The step of the checkpoint before the newest one, among the newest facts; -1: there was none.
_EARLIER: Final = "earlier checkpoint"
#: How many saves are known by their checksums, and their names among the newest facts. A snapshot has the events of a few steps.
_MOST_SAVES: Final = 32
_SAVE: Final = "save "
#: Causes of incidents in which a restore skipped a checkpoint, if they have its step.
_SKIPPED: Final = ("checkpoint_corrupt", "storage_unreachable")


class EventMerger:
    """Merges the events of one attempt's ranks into the spool."""

    def __init__(self, spool: Spool, world_size: int) -> None:
        self.spool = spool
        self.state = "placing"
        self.newest_step = 0
        self.first_step_at: float | None = None
        self.repair: Repair | None = None  # emitted with the first step after it
        self._steps = Steps(world_size)
        self._held: deque[tuple[int, Event]] = deque()  # reported after a step that other ranks are still to report
        self._newest_facts: dict[str, int] = {}  # kind of fact → the newest step that has one; of a plan its checksum

    @property
    def ended(self) -> bool:
        """Whether the last event is emitted."""
        return self.state in ("succeeded", "failed", "cancelled")

    def to_state(self) -> MergerState:
        return MergerState(
            state=self.state,
            newest_step=self.newest_step,
            first_step_at=self.first_step_at,
            repair=self.repair,
            open_steps=self._steps.open,
            held=[HeldEvent(step, dict(event)) for step, event in self._held],
            newest_facts=self._newest_facts,
        )

    def resume(self, state: MergerState) -> None:
        """Continue from a predecessor's state."""
        self.state, self.newest_step, self.first_step_at = state.state, state.newest_step, state.first_step_at
        self.repair = state.repair
        self._steps.refill(state.open_steps)
        self._held = deque((held.after, cast(Event, held.event)) for held in state.held)
        self._newest_facts = state.newest_facts

    def log(self, event: Event) -> None:
        self.spool.add("log", event["data"], event["ts"])

    def step(self, rank: int, event: Event) -> list[Ranks]:
        """One rank's record of a step; returns the steps that this record completes, by rank."""
        step = int(event["data"]["step"])
        again = event["data"].pop("again", False)
        if rank == 0 and not again:
            self._emit_running(event["ts"], step, "first_step")
        if step <= self.newest_step:  # trained once more after a repair, to the same bits
            return []
        whole = [{rank: event["data"]}] if again else self._steps.add(rank, event["data"])
        for ranks in whole:
            self._emit_step(merged(ranks), event["ts"])
        return [] if again else whole

    def leave(self, rank: int) -> list[Ranks]:
        """Expect no more steps of a rank in this generation; returns the steps that are whole without it, by rank."""
        whole = self._steps.leave(rank)
        for ranks in whole:
            self._emit_step(merged(ranks), time.time())
        return whole

    def program_started(self, rank: int, ts: float) -> None:
        """A rank's program of the user's own has started. It may never report a step."""
        if rank == 0:
            self._emit_running(ts, 0, "program_started")

    def of_program(self, kind: str, data: dict[str, Any], ts: float) -> None:
        """Values or files that a program logged, or a checkpoint that it saved.

        The steps of values and checkpoints are the job's progress, and may come again.
        """
        self.spool.add(kind, data, ts)
        steps = [data["step"]] if kind == "checkpoint" else []
        steps += [step for block in data.get("blocks", ()) for step in block["steps"]]
        self.newest_step = max(self.newest_step, *steps, 0)

    def fact(self, event: Event, step: int) -> None:
        """A plan, validation, checkpoint, incident or summary: emitted at once, but never before the step that it follows."""
        self._held.append((step, event))
        self._emit_held()

    def replay(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Events of rank 0 from its snapshot: emits those that were lost with the rank, drops the others."""
        step = self.newest_step
        for kind, data in events:
            event: Event = {"seq": 0, "ts": time.time(), "kind": kind, "data": dict(data) | {"again": True}}
            if kind == "step":
                step = int(data["step"])
                self.step(0, event)
            elif kind != "stopped":
                self.fact(event, step)

    def newest(self, kind: str) -> int:
        """The newest step that has an emitted fact of this sort; -1: none has."""
        return self._newest_facts.get(kind, -1)

    def flush(self) -> None:
        """At a generation's end: emit the events that wait for ranks that will not report any more."""
        for ranks in self._steps.rest():
            self._emit_step(merged(ranks), time.time())
        self._emit_held(all_of_them=True)

    def emit_incident(self, root: Failure, generation: int, log: Sequence[str]) -> None:
        """`log`: the last lines of the rank to blame."""
        incident: dict[str, Any] = {"cause": root.cause, "message": root.message, "rank": root.rank, "node": root.node}
        incident |= {"traceback": root.traceback, "generation": generation, "step": self.newest_step, "log": list(log)}
        self.emit(read(IncidentEvent, incident | root.evidence))

    def emit_fault(self, fault: Fault, what: str) -> None:
        """An injected fault was carried out."""
        event = FaultEvent(
            id=fault.id,
            fault=fault.kind,
            rank=fault.rank,
            delay_ms=fault.delay_ms,
            duration_s=fault.duration_s,
            done=True,
            message=what,
            step=self.newest_step,
        )
        self.emit(event, urgent=True)

    def emit_state(self, state: str, reason: str, message: str) -> None:
        self.state = state
        self.emit(StateEvent(state=state, reason=reason, message=message), urgent=True)

    def emit(self, event: OutEvent, ts: float | None = None, urgent: bool = False) -> None:
        """Number an event and keep it for the dispatcher. `ts`: when it happened; None: now."""
        self.spool.add(event.kind, to_json(event), ts, urgent)

    def _emit_running(self, ts: float, step: int, reason: str) -> None:
        """Rank 0 has trained a step, or started its program: the first time of all, or in a generation."""
        first = self.first_step_at is None
        if first:
            self.first_step_at = ts
        if self.repair is not None:
            # By the clock that began it: the rank's may be of another node.
            lost_s = max(0.0, time.time() - self.repair.began)
            event = read(RepairEvent, asdict(self.repair) | {"step": step, "seconds": lost_s})
            self.emit(event)
            self.emit_state("running", "repaired", _repair_text(event))
        elif first:
            self.emit_state("running", reason, "")
        self.repair = None

    def _emit_step(self, event: StepEvent, ts: float) -> None:
        self.emit(event, ts)
        self.newest_step = event.step
        self._emit_held()

    def _emit_held(self, all_of_them: bool = False) -> None:
        while self._held and (all_of_them or self._held[0][0] <= self.newest_step):
            _, event = self._held.popleft()
            data = dict(event["data"])
            again = bool(data.pop("again", False))
            if event["kind"] == PlanEvent.kind:
                is_new = _is_other_plan(self._newest_facts, data)
            elif event["kind"] == CheckpointEvent.kind:
                is_new = _is_other_save(self._newest_facts, data, again)
            else:
                is_new = _is_news(self._newest_facts, _sort(event["kind"], data), int(data.get("step") or 0))
            if not is_new:
                continue
            self.spool.add(event["kind"], data, event["ts"])
            if event["kind"] == IncidentEvent.kind:
                _expect_saves_again(self._newest_facts, data)


def _is_other_plan(newest: dict[str, int], data: dict[str, Any]) -> bool:
    """Whether the plan differs from the newest one: a gang that measured again may have split its stages again. Notes its checksum."""
    before = newest.get(PlanEvent.kind)
    newest[PlanEvent.kind] = zlib.crc32(json.dumps(data, sort_keys=True).encode())
    return before != newest[PlanEvent.kind]


def _is_other_save(newest: dict[str, int], save: dict[str, Any], again: bool) -> bool:
    """Whether a checkpoint is to be emitted. Notes the newest that is there after it, and the one before that.

    A save with a checksum is: a gang that was repaired from an older snapshot saves steps again, and replaces their files. `again`: it is
    the report of a checkpoint that was restored, which names none that are kept, or of a save that may be known by its checksum. The first
    is emitted if its step is later than the newest.
    """
    before, step, digest = newest.get(CheckpointEvent.kind, -1), int(save["step"]), save.get("digest")
    if step <= before and (digest is None or (again and (save.get("kept") is None or _is_known(newest, digest)))):
        return False
    _note_save(newest, digest)
    kept = (before,) if save.get("kept") is None else save["kept"]
    # A later one that was kept is one that a restore has skipped.
    there = sorted(one for one in {-1, step, *kept} if one <= max(before, step))
    newest[_EARLIER], newest[CheckpointEvent.kind] = there[-2:]
    return True


def _is_known(newest: dict[str, int], digest: str) -> bool:
    sum_ = zlib.crc32(digest.encode())
    return any(newest.get(f"{_SAVE}{place}") == sum_ for place in range(_MOST_SAVES))


def _note_save(newest: dict[str, int], digest: str | None) -> None:
    """Remember the newest saves by their checksums."""
    if digest is not None:
        place = newest[_SAVE] = (newest.get(_SAVE, -1) + 1) % _MOST_SAVES
        newest[f"{_SAVE}{place}"] = zlib.crc32(digest.encode())


def _expect_saves_again(newest: dict[str, int], incident: dict[str, Any]) -> None:
    """A restore skipped a checkpoint: the steps after the one before it are trained again, and may be saved from memory."""
    step = incident.get("step")
    if incident.get("cause") not in _SKIPPED or step is None:
        return
    if newest.get(CheckpointEvent.kind, -1) >= step:
        newest[CheckpointEvent.kind] = min(newest.pop(_EARLIER, step), step - 1)


def _is_news(newest: dict[str, int], sort: str, step: int) -> bool:
    """Whether no fact of this sort was emitted for this step or a later one: a repaired gang reports some again. Notes the step."""
    is_new = step > newest.get(sort, -1)
    newest[sort] = max(step, newest.pop(sort, -1))
    incidents = [known for known in newest if known.startswith("incident ")]
    for oldest in incidents[: max(0, len(incidents) - _MOST_INCIDENTS)]:
        del newest[oldest]
    return is_new


def _sort(kind: str, data: dict[str, Any]) -> str:
    """A step has at most one fact of each kind, but it may have several incidents."""
    return f"{kind} {data.get('cause')} {data.get('message')}" if kind == "incident" else kind


def _repair_text(repair: RepairEvent) -> str:
    if repair.step == 0:
        return f"generation {repair.generation} has started its programs again; {repair.seconds:.1f} s were lost"
    start = "the newest checkpoint" if repair.restored is None else f"step {repair.restored}, which was in memory"
    spares = f", spares as ranks {list(repair.spares)}" if repair.spares else ""
    return f"generation {repair.generation} continues after {start}{spares}; {repair.seconds:.1f} s were lost"
