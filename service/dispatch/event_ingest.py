"""Stores a batch of a gang's events in one transaction with its cursor: each event exactly once, whichever side dies.

The transaction first locks the job's row under the dispatcher's lease. Events that were stored before are skipped by
their number. A batch from a dispatcher that lost its lease is refused as a whole.

The clock of the supervisor's node may be hours off. So all times of a gang, which the supervisor has by its own clock, are corrected by
the difference to the dispatcher's. That of a move also lies within the attempt.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...strategies.layout import Layout
from ...workers.messages import metric_block
from ...workers.messages.event import (
    GANG_KINDS,
    ArtifactsEvent,
    CheckpointEvent,
    Event,
    ExecEvent,
    FaultEvent,
    IncidentEvent,
    LogEvent,
    MetricsEvent,
    ProfileEvent,
    RankMetricsEvent,
    StateEvent,
    StepEvent,
    SummaryEvent,
    SystemEvent,
    TraceEvent,
    TraceFinishedEvent,
    from_json,
    sanitize,
    to_json,
)
from ..errors import LeaseLost
from ..jobs import artifacts
from ..jobs.transitions import Cause, move, route
from ..orders import fault_injection, rank_commands, rank_profiles, step_traces
from ..policies.limits import Rules
from ..policies.retry import MACHINES
from ..queries import checkpoint_catalogue
from ..states import FINAL, HOLDING, State
from ..store import attempts, events, jobs, logged_metrics, logs, rank_samples, rollups, sparklines, steps
from ..store.engine import Store
from ..store.leases import Lease
from ..store.packing.loss_sparkline import Sparkline, extended
from ..store.packing.rank_sample import row_of
from . import system_use
from .node_faults import attribute_fault
from .retry import lose_attempt

#: Fields of a step that are columns of its row.
_STEP_FIELDS: Final = (
    "step",
    "loss",
    "lr",
    "grad_norm",
    "loss_scale",
    "tokens",
    "tokens_per_s",
    "step_s",
    "step_s_min",
    "step_s_median",
    "step_s_max",
    "slowest_rank",
    "mfu",
)

_RULES = Rules()

#: Characters of a job's reason and an attempt's outcome.
_REASON: Final = 64

#: Cause of the incident that names of metrics are left out.
_METRICS_DROPPED: Final = "metrics_dropped"
#: States in which a job may have its next layout, and its gang still the one before.
_CHANGED: Final = frozenset({State.RESHARDING, State.PAUSING, State.CANCELLING})
#: Incidents among which one of the same cause is looked for.
_LATEST: Final = 100
#: More than the generations of an attempt, also times the restarts in each: runs of a program are numbered by all.
_GENERATIONS: Final = 1 << 32
#: Weight of the newest step's time in the moving average that predicts the remaining time.
_NEWEST = 0.1


@dataclass(frozen=True)
class IngestResult:
    """The result of a batch: the job's state, the number of the last stored event, and whether the gang has ended."""

    state: State
    cursor: int
    ended: bool


async def ingest(
    store: Store,
    lease: Lease,
    attempt: int,
    batch: list[dict[str, Any]],
    rules: Rules = _RULES,
    behind_s: float = 0.0,
) -> IngestResult:
    """Store a batch of events of one attempt. Raises LeaseLost when the lease is another's; then nothing is stored.

    `behind_s`: of the clock of the gang's node, to this one, and how late the batch was read.
    """
    async with store.write() as tx:
        job = await jobs.locked(tx, lease.job_id, lease.token)
        row = await attempts.get(tx, lease.job_id, attempt)
        if job is None or row is None or job["attempt"] != attempt:
            raise LeaseLost(f"{lease.job_id}, attempt {attempt}: another dispatcher manages it now.")
        fresh = sorted((event for event in batch if event["seq"] > row["cursor"]), key=lambda event: int(event["seq"]))
        earliest = max(row["started_at"], job["started_at"] or 0.0)
        rows = _Batch(tx, job, row, rules, earliest, behind_s)
        for event in fresh:
            await rows.add(event)
        return await rows.store()


@dataclass
class _Batch:
    """The rows of a batch. Events keep their order with the job's moves; steps and logs are collected."""

    tx: AsyncConnection
    job: RowMapping
    placed: RowMapping  # its attempt
    rules: Rules
    #: No move is before: when the attempt was placed, the job started, or its last move in the batch was.
    earliest: float
    behind_s: float  # of the clock of the gang's node
    ended: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    logs: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, list[logged_metrics.Point]] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    system: list[tuple[float, SystemEvent]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State(self.job["state"])
        self.attempt, self.cursor = int(self.job["attempt"]), int(self.placed["cursor"])
        self.ended = self.state not in HOLDING  # its last batch was stored, and comes again because the answer was lost

    async def add(self, event: Mapping[str, Any]) -> None:
        if self.ended or event["seq"] == self.cursor:
            return
        if event["seq"] != self.cursor + 1:
            self._note(time.time(), _gap(self.cursor, event["seq"]))
        self.cursor = int(event["seq"])
        kind, ts = str(event["kind"]), float(event["ts"]) + self.behind_s
        try:
            # A trace's part is large and stored separately: its text is made storable there.
            data = event["data"] if kind == TraceEvent.kind else storable(event["data"])
            await self._add(ts, from_json(kind, data, GANG_KINDS))
        except (KeyError, TypeError, ValueError) as error:
            message = f"Event {self.cursor} ({kind[:32]}) is invalid: {error}"
            self._note(ts, IncidentEvent(cause="invalid_event", message=message))

    async def _add(self, ts: float, event: Event) -> None:
        match event:
            case StateEvent():
                reason = event.reason and event.reason[:_REASON]  # an exception of the user's own may name any cause
                self.earliest = max(self.earliest, min(ts, time.time()))
                await self._move(State(event.state), Cause("gang", self.earliest, reason, event.message, ts))
            case StepEvent():
                self.steps.append(self._step(ts, event))
                for name, value in (event.logged or {}).items():  # a step comes once from all generations of an attempt
                    self.metrics.setdefault(name, []).append((self.attempt * _GENERATIONS, event.step, value))
            case LogEvent():
                self.logs.extend(self._lines(ts, event))
            case MetricsEvent():
                self._take_metrics(event)
            case SystemEvent():
                self.system.append((ts, event))
            case ArtifactsEvent():
                run = self.attempt * _GENERATIONS + event.generation
                self.artifacts += artifacts.rows_of(event, job_id=self.job["id"], run=run, ts=ts)
            case RankMetricsEvent():
                layout = None if self.state in _CHANGED else self._layout
                self.samples.append(row_of(ts, self.attempt, layout, event, await self._sample_before()))
            case ExecEvent() | FaultEvent() | ProfileEvent() | TraceFinishedEvent():
                await self._settle(ts, event)
            case TraceEvent():
                await step_traces.keep(self.tx, self.job["id"], attempts.world_size(self.placed, self.job), event)
            case SummaryEvent():
                first_step_s = await _to_first_step_s(self.tx, await self._reread())
                summary = replace(event, time_to_first_step_s=first_step_s)
                self._note(ts, summary)
                self.columns["summary"] = to_json(summary)
            case CheckpointEvent() if await checkpoint_catalogue.is_known(self.tx, self.job, event):
                await self._act_on(ts, event)
            case _:
                self._note(ts, event)
                await self._act_on(ts, event)

    async def _act_on(self, ts: float, event: Event) -> None:
        """Apply the effects of an event that is stored unchanged."""
        match event:
            case IncidentEvent():
                await checkpoint_catalogue.skipped(self.tx, self.job["id"], event)
                await self._attribute_fault(ts, event)
            case CheckpointEvent():
                job_id = self.job["id"]
                late = await checkpoint_catalogue.is_late(self.tx, self.job, event, self.events)
                await checkpoint_catalogue.saved(self.tx, job_id, event, late)
                if not late and await checkpoint_catalogue.is_newest(self.tx, job_id, event):
                    self.columns["checkpoint"] = event.path

    async def _sample_before(self) -> Mapping[str, Any] | None:
        stored = () if self.samples else await rank_samples.before(self.tx, self.job["id"], None, 1)
        return next(iter(self.samples[-1:] or stored), None)

    @property
    def _layout(self) -> Layout:
        return Layout.model_validate(self.job["spec"]["train"]["layout"])

    def _note(self, ts: float, event: Event, actor: str = "gang") -> None:
        self.events.append(
            {"attempt": self.attempt, "kind": event.kind, "ts": ts, "actor": actor, "data": to_json(event)}
        )

    async def _attribute_fault(self, ts: float, incident: IncidentEvent) -> None:
        cordon = await attribute_fault(self.tx, self.job["id"], self.attempt, incident, self.rules.cordon)
        if cordon is not None:
            self._note(ts, cordon, actor="faults")

    async def _settle(self, ts: float, event: ExecEvent | FaultEvent | ProfileEvent | TraceFinishedEvent) -> None:
        """Settle the order that this event ends. One that was settled before is not reported again."""
        tx, job_id = self.tx, self.job["id"]
        match event:
            case FaultEvent():
                settled: Event | None = await fault_injection.settle(tx, job_id, event, ts)
            case ExecEvent():
                settled = await rank_commands.settle(tx, job_id, event, ts)
            case TraceFinishedEvent():
                settled = await step_traces.settle(tx, job_id, event, ts)
            case ProfileEvent():
                run, limits = self.attempt * _GENERATIONS, self.rules.artifacts
                settled = await rank_profiles.settle(tx, job_id, event, ts, run=run, limits=limits)
        if settled is not None:
            self._note(ts, settled)

    async def _move(self, to: State, cause: Cause) -> None:
        """Move the job as the gang reports, after the events that precede the move."""
        await self._flush_events()
        self.ended = to in FINAL
        if (reason := self._lost(to, cause)) is not None:
            lost = replace(cause, reason=reason)
            self.state = await lose_attempt(self.tx, await self._reread(), lost, self.rules.backoff, _reached(self))
            return
        if to == State.RECOVERING:
            self.columns["repairs"] = self.columns.get("repairs", self.job["repairs"]) + 1
        if self.ended:
            await fault_injection.settle_all(self.tx, self.job, cause)
            await step_traces.settle_all(self.tx, self.job, cause)
            await rank_profiles.settle_all(self.tx, self.job, cause)
            await rank_commands.settle_all(self.tx, self.job, cause)
            await attempts.end(self.tx, self.job["id"], self.attempt, cause.reason or to, cause.now)
        for state in route(self.state, to):
            await move(self.tx, self.job["id"], self.state, state, cause, token=self.job["lease_token"])
            self.state = state

    def _lost(self, to: State, cause: Cause) -> str | None:
        """Why the attempt is lost, or None. The job's budgets decide whether the job is lost too."""
        if to == State.FAILED and cause.reason in MACHINES | {"exception"}:
            return cause.reason
        return "gang_lost" if to == State.CANCELLED and self.state != State.CANCELLING else None

    async def _reread(self) -> RowMapping:
        job = await jobs.locked(self.tx, self.job["id"], self.job["lease_token"])
        assert job is not None
        return job

    def _step(self, ts: float, event: StepEvent) -> dict[str, Any]:
        row = {name: getattr(event, name) for name in _STEP_FIELDS}
        return {**row, "attempt": self.attempt, "ts": ts, "skipped": bool(event.skipped)}

    def _take_metrics(self, event: MetricsEvent) -> None:
        most = metric_block.MOST_RESTARTS
        run = self.attempt * _GENERATIONS + event.generation * (most + 1) + min(event.restarts, most)
        for name, points in (column for block in event.blocks for column in metric_block.columns(block)):
            self.metrics.setdefault(name, []).extend((run, step, value) for step, value in points)

    async def _store_logged(self) -> None:
        if self.artifacts:
            limits = self.rules.artifacts
            left_out = await artifacts.record(self.tx, self.job["id"], self.artifacts, limits)
            if left_out is not None and not await self._reported(left_out.cause):
                self._note(time.time(), left_out)
        dropped = await logged_metrics.append(self.tx, self.job["id"], self.metrics) if self.metrics else []
        if dropped and not await self._reported(_METRICS_DROPPED):
            self._note(time.time(), _dropped(dropped))

    async def _reported(self, cause: str) -> bool:
        """Whether one of the attempt's latest incidents has the cause."""
        latest = await events.of_kind_before(self.tx, self.job["id"], IncidentEvent.kind, None, _LATEST)
        return any(row["attempt"] == self.attempt and row["data"]["cause"] == cause for row in latest)

    def _lines(self, ts: float, event: LogEvent) -> Iterable[dict[str, Any]]:
        same = {"attempt": self.attempt, "rank": event.rank, "stream": event.stream[:8], "ts": ts}
        return [{**same, "line": event.first + i, "text": text} for i, text in enumerate(event.lines)]

    async def store(self) -> IngestResult:
        await self._store_logged()
        await self._flush_events()
        await steps.append(self.tx, self.job["id"], self.steps)
        await self._extend_curves()
        await logs.append(self.tx, self.job["id"], self.logs)
        await rank_samples.append(self.tx, self.job["id"], self.samples)
        columns = self.columns | (self._progress() if self.steps else {})
        columns |= await system_use.keep(self.tx, self.job["id"], self.system)
        if columns:
            await jobs.set_columns(self.tx, self.job["id"], columns)
        await attempts.advance(self.tx, self.job["id"], self.attempt, self.cursor)
        return IngestResult(self.state, self.cursor, self.ended)

    async def _flush_events(self) -> None:
        await events.append(self.tx, self.job["id"], self.events)
        self.events = []

    async def _extend_curves(self) -> None:
        if not self.steps:
            return
        numbers = [step["step"] for step in self.steps]
        await rollups.extend(self.tx, self.job["id"], min(numbers), max(numbers))
        row = await sparklines.get(self.tx, self.job["id"])
        known = Sparkline() if row is None else Sparkline(row["attempt"], row["width"], row["low"], row["high"])
        sparkline = extended(known, self.attempt, [(step["step"], step["loss"]) for step in self.steps])
        await sparklines.put(self.tx, self.job["id"], asdict(sparkline))

    def _progress(self) -> dict[str, Any]:
        """Progress as of the newest step. The remaining time comes from an exponential moving average of the steps' seconds."""
        mean = self.job["mean_step_s"]
        for row in self.steps:
            if row["step_s"] is not None:
                mean = row["step_s"] if mean is None else (1 - _NEWEST) * mean + _NEWEST * row["step_s"]
        newest = self.steps[-1]
        left = max(0, self.job["steps"] - newest["step"])
        eta_s = None if mean is None or self.state not in HOLDING else left * mean
        progress = {name: newest[name] for name in ("step", "loss", "tokens", "tokens_per_s")}
        return {**progress, "mean_step_s": mean, "eta_s": eta_s}


async def _to_first_step_s(tx: AsyncConnection, job: RowMapping) -> float | None:
    """Seconds from the job's creation to its first step in any attempt; None if it has none.

    Up to the gang's start by this side's clock, from there by the gang's, which both events have, corrected alike.
    """
    starting = await events.first_state(tx, job["id"], State.STARTING)
    running = await events.first_state(tx, job["id"], State.RUNNING)
    if job["started_at"] is None or starting is None or running is None:
        return None
    return max(0.0, float(job["started_at"] - job["created_at"] + running["ts"] - starting["ts"]))


def _reached(batch: _Batch) -> int:
    """The highest step of the batch that was trained or logged: it is stored after the move."""
    logged = (step for points in batch.metrics.values() for _, step, _ in points)
    return max(chain((row["step"] for row in batch.steps), logged), default=0)


def _dropped(names: Sequence[str]) -> IncidentEvent:
    some = ", ".join(names[:3])
    message = (
        f"A job has at most {metric_block.MOST_NAMES:,} logged metrics; {some} and all that follow are not stored."
    )
    return IncidentEvent(cause=_METRICS_DROPPED, message=message)


def _gap(cursor: int, seq: int) -> IncidentEvent:
    message = f"Events {cursor + 1} to {seq - 1} of this attempt were lost before they were stored."
    return IncidentEvent(cause="events_lost", message=message)


def storable(value: Any) -> Any:
    """Strict JSON that both databases accept: no NaN, no null characters, no halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return storable(sanitize(value)) if not isinstance(value, int | float | None) else sanitize(value)
