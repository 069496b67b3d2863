"""The event pump: pulls each rank's events in order, emits them, and yields their consequences for the gang.

Rules that it keeps: an event is acknowledged only when all its consequences are in the journal; the exit of an older
generation's trainer is ignored.
"""

import contextlib
import signal
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..clock_offset import ClockOffset
from ..messages.event import (
    LogEvent,
    MetricsEvent,
    PreflightEvent,
    RankMetricsEvent,
    RepairEvent,
    SystemEvent,
    read,
    to_json,
)
from ..messages.event_buffer import Event, Ranks
from ..messages.exec_request import GATE_STREAM, STREAM
from ..messages.gang_spec import GangSpec
from ..messages.metric_block import MetricBlock, printed_blocks
from ..messages.rank_event import ExitEvent, FailedEvent, RayWorkersFailedEvent, RayWorkersStartedEvent
from ..program.program import ENTRY
from .event_merger import EventMerger
from .gang_secrets import GangSecrets
from .journal.journal import GATHER_S, Journal
from .policies.failures import Failure, brief, exited, raised, unforked, watchdog_line
from .policies.ray_workers import CAUSE as RAY_WORKER
from .policies.ray_workers import worker_failure
from .pull_gate import PullGate, steps_of_a_turn, turns
from .rank_samples import places
from .ranks.handles import PULL_S
from .ranks.members import Member, drain, leases_kept, newest_generation
from .ranks.neighbours import Start
from .step_watch import StepWatch
from .system_samples import SystemSamples
from .trace_orders import TraceOrders


@dataclass(frozen=True)
class PumpedEvent:
    """One event of a rank and its consequences. None, False: no consequence.

    `beside`: it is of what goes on beside the rank's trainer, and no sign of it.
    """

    number: int
    step: int | None = None
    done: bool = False
    stopped: bool = False
    exited: bool = False
    failed: bool = False
    failure: Failure | None = None
    beside: bool = False
    snapshots_off: bool = False


@dataclass(frozen=True)
class RankLost:
    """A rank's actor died or does not answer."""

    message: str


class EventPump:
    """One for all ranks of a gang. `members` are all of them, by rank."""

    def __init__(
        self,
        spec: GangSpec,
        journal: Journal,
        merger: EventMerger,
        watch: StepWatch,
        traces: TraceOrders,
        secrets: GangSecrets,
    ) -> None:
        self.spec = spec
        self.secrets = secrets
        self.journal = journal
        self.merger = merger
        self.watch = watch
        self.traces = traces
        self._runs_program = spec.entry == ENTRY  # what it prints is progress: it has no steps
        self._has_unusable = False  # a line that was meant as metrics, of which there was an incident
        self.system = SystemSamples(spec.world_size)
        self._pull_s = min(PULL_S, spec.lease_s / 3)  # a rank's lease begins again when a pull ends, too
        self._gate = PullGate(merger.spool)
        self._steps_of_a_turn = steps_of_a_turn(spec.world_size)
        self._handlers: dict[str, Callable[[Sequence[Member], Member, Event], PumpedEvent]] = {
            "step": self._take_step,
            "preflight": self._take_preflight,
            "program_started": self._take_program_started,
            "failed": self._take_failed,
            "ray_workers_failed": partial(_take_ray_failure, self),
            "ray_workers_started": partial(_take_ray_start, self),
            "done": _take_end,
            "stopped": _take_end,
            "exit": self._take_exit,
            "log": self._take_log,
            "metrics": self._take_logged,
            "checkpoint": self._take_checkpoint,
            "incident": partial(_take_incident, self),
            "system": self._take_system,
            "artifacts": self._take_logged,
            "trace": self._take_trace,
            "trace_finished": self._take_traced,
        }

    async def pull_rank(
        self, members: Sequence[Member], member: Member, start: Start | None
    ) -> AsyncGenerator[PumpedEvent | RankLost, None]:
        """Start the rank's trainer, unless `start` is None, and pull its events until the trainer has ended.

        The caller must apply each yielded consequence to the member before it continues the iteration.
        """
        from ray.exceptions import RayError

        clock = ClockOffset()  # of the rank's node
        try:
            await _settled(self.journal, member)
            if start is not None:
                await self._start(member, start)
            while not member.exited:
                if not await self._gate.opens(self._pull_s):
                    await member.placed.heartbeat()
                    continue
                events = _on_this_clock(await member.placed.pull(member.pulled, self._pull_s), clock)
                called = time.monotonic()
                for turn in turns(events, self._steps_of_a_turn):
                    if time.monotonic() >= called + self._pull_s:
                        await _keep_lease(member)
                        called = time.monotonic()
                    if not self._gate.is_open:
                        break  # what is not taken in is not acknowledged: the next pull brings it again
                    for event in turn:
                        yield self._handlers.get(event["kind"], self._take_fact)(members, member, event)
                    # The next pull acknowledges these events. If all are steps, their write to the journal may wait for others.
                    await _settled(self.journal, member, GATHER_S if _only_steps(turn) else 0.0)
        except (RayError, TimeoutError) as error:
            yield RankLost(f"the rank's actor is lost: {brief(error)}")

    async def _start(self, member: Member, start: Start) -> None:
        """Give the rank its run, unless a predecessor did. It waits for the job's secrets, and its lease is kept meanwhile."""
        holder = None if start.holder is None else start.holder.handle
        given = (self.spec.run, start.assignment, holder, start.replicas)
        if not await member.placed.start(*given, self.secrets.now):
            async with leases_kept([member], self.spec.lease_s):
                secrets = await self.secrets.values()
            self.watch.progress.began()
            await member.placed.start(*given, secrets)

    def leave(self, members: Sequence[Member], rank: int) -> None:
        """Expect no more steps of a rank without which the others train on."""
        for ranks in self.merger.leave(rank):
            self._watch_step(ranks, members)

    async def drain(
        self,
        members: Sequence[Member],
        timeout_s: float,
        most_s: float = 0.0,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> list[Member]:
        """Pull what trainers that were ended have left, and emit it; returns the members without a report of their trainer's exit.

        A full spool takes it, too: a rank that could not report would be taken for one that is lost, with its snapshots. Trainers of which
        there still is news have more than `timeout_s`, up to `most_s`, while `goes_on()`.
        """
        with self._gate.held_open():
            late = await drain(members, timeout_s, most_s, goes_on)
        self.merger.flush()  # what waits for ranks that will not report any more
        self._emit_sample(self.watch.samples.flush(), members)
        self._emit_system(self.system.flush())
        return late

    def _take_log(self, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        found = read(LogEvent, event["data"])
        if found.stream in (STREAM, GATE_STREAM):  # of what a user does beside the rank
            self.merger.log(event)
            return PumpedEvent(event["seq"], beside=True)
        member.log.extend(found.lines)
        member.watchdog = member.watchdog or watchdog_line(found.lines)
        self.merger.log(event)
        if self._runs_program:
            self.watch.progress.began()
            blocks, unusable = printed_blocks(found.lines)
            if blocks:
                self.merger.of_program("metrics", _metrics(member, blocks), event["ts"])
            if unusable is not None and not self._has_unusable:
                self._has_unusable = True
                failure = Failure("metric_line_unusable", member.rank, unusable)
                self.merger.emit_incident(failure, newest_generation(members), [])
        return PumpedEvent(event["seq"])

    def _take_logged(self, _: Sequence[Member], __: Member, event: Event) -> PumpedEvent:
        self.watch.progress.began()
        self.merger.of_program(event["kind"], event["data"], event["ts"])
        return PumpedEvent(event["seq"])

    def _take_checkpoint(self, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        if not self._runs_program:
            return self._take_fact(members, member, event)
        self.watch.progress.began()
        self.merger.of_program("checkpoint", event["data"], event["ts"])
        return PumpedEvent(event["seq"])

    def _take_system(self, _: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        self._emit_system(self.system.take(member.rank, member.node, event["data"]), event["ts"])
        return PumpedEvent(event["seq"], beside=True)

    def _emit_system(self, samples: Sequence[SystemEvent], ts: float | None = None) -> None:
        """No progress, and, with samples of steps, the first to be left out while the dispatcher takes no events."""
        for sample in samples if not self.merger.spool.half_full else ():
            self.merger.emit(sample, ts)

    def _take_step(self, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        step = int(event["data"]["step"])
        self.watch.progress.stepped(step, float(event["data"].get("step_s") or 0.0))
        for ranks in self.merger.step(member.rank, event):
            self._watch_step(ranks, members)
        return PumpedEvent(event["seq"], step=step)

    def _take_program_started(self, _: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        self.watch.progress.began()
        self.merger.program_started(member.rank, event["ts"])
        return PumpedEvent(event["seq"])

    def _watch_step(self, ranks: Ranks, members: Sequence[Member]) -> None:
        self._emit_sample(self.watch.samples.add(ranks), members)
        for failure in self.watch.incidents(ranks, [member.node for member in members]):
            self.merger.emit_incident(failure, newest_generation(members), [])

    def _emit_sample(self, sample: dict[str, Any] | None, members: Sequence[Member]) -> None:
        if sample is not None and not self.merger.spool.half_full:
            where = places([member.node for member in members])
            self.merger.emit(read(RankMetricsEvent, sample | where))

    def _take_fact(self, _: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        self.merger.fact(event, member.step)
        return PumpedEvent(event["seq"])

    def _take_preflight(self, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        """What is slow is an incident each. Training continues: whether the node is to be cordoned is for people to decide."""
        self.watch.progress.began()
        taken = self._take_fact(members, member, event)
        for slow in read(PreflightEvent, event["data"]).slow:
            failure = Failure("slow_network", slow.rank, slow.message, members[slow.rank].node)
            self.merger.emit_incident(failure, newest_generation(members), [])
        return taken

    def _take_failed(self, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        failed = read(FailedEvent, event["data"])
        if failed.facts.unattributed:
            return PumpedEvent(event["seq"], failed=True, failure=raised(failed, None, None))
        named = failed.facts.rank
        accused = member.rank if named is None or named not in range(len(members)) else named
        failure = raised(failed, accused, members[accused].node)
        return PumpedEvent(event["seq"], failed=True, failure=failure)

    def _take_exit(self, _: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        ended = read(ExitEvent, event["data"])
        if member.reservation and ended.generation < member.reservation.generation:
            return PumpedEvent(event["seq"])  # of a trainer that a dead supervisor had started
        if member.done or member.failed or (ended.ordered and ended.status == -signal.SIGKILL):
            return PumpedEvent(event["seq"], exited=True)
        if ended.unforked is not None:
            failure = unforked(member.rank, member.node, ended.unforked)
        else:
            failure = exited(member.rank, member.node, ended.status, member.watchdog, member.log)
        return PumpedEvent(event["seq"], exited=True, failure=failure)

    def _take_trace(self, _: Sequence[Member], __: Member, event: Event) -> PumpedEvent:
        self.traces.take_step(event)
        return PumpedEvent(event["seq"])

    def _take_traced(self, _: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
        self.traces.take_end(member.rank, event)
        return PumpedEvent(event["seq"])


def _metrics(member: Member, blocks: Sequence[MetricBlock]) -> dict[str, Any]:
    """The event of the metrics that a rank's program has printed."""
    generation = member.reservation.generation if member.reservation else 0
    return to_json(MetricsEvent(rank=member.rank, generation=generation, blocks=tuple(blocks)))


def _take_incident(pump: EventPump, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
    """The gang goes on. Without snapshots a rank that is lost could not return."""
    refused = event["data"].get("cause") == "snapshots_off"
    return replace(pump._take_fact(members, member, event), snapshots_off=refused)


def _take_ray_failure(pump: EventPump, members: Sequence[Member], member: Member, event: Event) -> PumpedEvent:
    """Ray Train starts its workers again: the gang goes on."""
    pump.watch.progress.began()
    failure = worker_failure(read(RayWorkersFailedEvent, event["data"]), [one.node for one in members])
    pump.merger.emit_incident(failure, newest_generation(members), member.log)
    return PumpedEvent(event["seq"])


def _take_ray_start(pump: EventPump, members: Sequence[Member], _: Member, event: Event) -> PumpedEvent:
    pump.watch.progress.began()
    started = read(RayWorkersStartedEvent, event["data"])
    generation, step = newest_generation(members), pump.merger.newest_step
    repair = RepairEvent(cause=RAY_WORKER, generation=generation, restored=None, step=step, seconds=started.seconds)
    pump.merger.emit(repair, event["ts"])
    return PumpedEvent(event["seq"])


def _take_end(_: Sequence[Member], __: Member, event: Event) -> PumpedEvent:
    return PumpedEvent(event["seq"], done=event["kind"] == "done", stopped=event["kind"] == "stopped")


async def _settled(journal: Journal, member: Member, gather_s: float = 0.0) -> None:
    """As the journal's `settled`. Meanwhile no event is taken from the rank."""
    member.writing = True
    try:
        await journal.settled(gather_s)
    finally:
        member.writing = False


async def _keep_lease(member: Member) -> None:
    """An actor that is gone ends the next pull; what it has given is taken in before."""
    with contextlib.suppress(Exception):  # a call to another process
        await member.placed.heartbeat()


def _on_this_clock(events: Sequence[Event], clock: ClockOffset) -> list[Event]:
    """The events with the times that this node's clock had. Those of an actor of an earlier version, without `now`, are as they were."""
    if events and "now" in events[0]:
        clock.add(time.time() - events[0]["now"])
    return [
        Event(seq=event["seq"], ts=event["ts"] + clock.seconds, kind=event["kind"], data=event["data"])
        for event in events
    ]


def _only_steps(events: Sequence[Event]) -> bool:
    return all(event["kind"] == "step" for event in events)
