"""What can be asked of jobs: the one door from the API to the store, in one or a few short transactions each."""

import re
import time
from heapq import merge
from itertools import takewhile
from math import inf
from operator import attrgetter
from typing import Any

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import StateEvent, to_json
from ...workers.spec import TrainSpec
from .. import capacity
from ..errors import (
    IdempotencyConflict,
    InvalidCursor,
    InvalidSpec,
    JobEnded,
    JobNotFound,
    StateChanged,
)
from ..ids import job_in, new_job_id
from ..queries import checkpoint_catalogue
from ..schemas.cursor import Cursor
from ..schemas.job import Budget, Budgets, Job, Jobs, Order, Progress
from ..schemas.live_tail import Tail, TailItem
from ..schemas.log import LogLine, Logs
from ..schemas.step import Evaluation, Metrics, Step
from ..settings import Settings
from ..spec import JobSpec
from ..states import FINAL, State
from ..store import events as event_rows
from ..store import jobs as job_rows
from ..store import logs as log_rows
from ..store import rank_samples as rank_rows
from ..store import steps as step_rows
from ..store.dialect import unix_now
from ..store.engine import Store
from ..store.packing.rank_sample import sample_of
from . import elastic, validation
from . import resume as resuming
from .spec_files import SpecFiles
from .transitions import Word, move

_STEP_FIELDS = tuple(Step.model_fields)


async def submit(
    store: Store,
    settings: Settings,
    spec: JobSpec,
    idempotency_key: str | None,
    body_hash: str,
    actor: str,
    files: SpecFiles | None = None,
) -> tuple[Job, bool]:
    """Check the spec against layout, files and cluster, and store it as `queued`. `files`: this process' look at files.

    False beside the job: it was there before (the same key and body). Raises InvalidLayout, InvalidSpec, MissingFile, NotAFile,
    FileTooLarge, TooManyFiles, FilesTooSlow, EmptyCorpus, TooManyRanks, UnknownCheckpoint, CheckpointGone, CheckpointDamaged,
    ResumeMismatch, IdempotencyConflict; then nothing is stored.
    """
    if idempotency_key is not None:
        async with store.read() as tx:
            known = await job_rows.by_key(tx, idempotency_key)
        if known is not None:
            return _replayed(known, body_hash), False
    row, _ = await new_row(store, settings, spec, files or SpecFiles())
    row |= {"idempotency_key": idempotency_key, "body_hash": body_hash, "actor": actor}
    async with store.write() as tx:
        if row["elastic"]:
            row["elastic_at"] = unix_now(tx) + spec.policy.elastic_grace_s
        created = await job_rows.insert(tx, row)
        if created:
            event = StateEvent(state=State.QUEUED, reason=None, message=None, attempt=0)
            first = {"attempt": 0, "kind": event.kind, "ts": row["created_at"], "actor": actor, "data": to_json(event)}
            await event_rows.append(tx, row["id"], [first])
        stored = await (job_rows.by_id(tx, row["id"]) if created else job_rows.by_key(tx, idempotency_key or ""))
    assert stored is not None
    return (job_of(stored), True) if created else (_replayed(stored, body_hash), False)


def _replayed(row: RowMapping, body_hash: str) -> Job:
    if row["body_hash"] == body_hash:
        return job_of(row)
    raise IdempotencyConflict(
        f"This idempotency key belongs to {row['id']}, which was submitted with another body.",
        field="Idempotency-Key",
        remedy="Use a new key for a new job.",
    )


async def new_row(
    store: Store, settings: Settings, spec: JobSpec, files: SpecFiles
) -> tuple[dict[str, Any], validation.Checked]:
    """The checked spec as a row of `jobs` that is not stored yet, and what was found. Raises as `submit` does of the spec."""
    _refuse_null_characters(spec.model_dump(mode="json", by_alias=True))
    validation.check_paths(spec.train)
    checked = await validation.check(spec, settings, files)
    async with store.read() as tx:
        clusters = await capacity.inventories(tx, settings)
        source = await _find(tx, spec.train.resume_from) if spec.train.resume_from else None
    resume = None
    if spec.train.resume_from is not None:
        resume = await files.look(lambda _: _resume(settings, spec.train, source))
    if resume is not None:
        async with store.read() as tx:
            await checkpoint_catalogue.refuse_unusable_path(tx, resume, "train.resume_from")
    validation.check_ranks(spec, checked, clusters)
    now = time.time()
    row = {
        "id": new_job_id(now),
        "name": spec.name,
        "state": State.QUEUED,
        "labels": spec.labels,
        **elastic.columns(spec, checked.batch, checked.forms),
        "wanted_device": spec.device,
        "max_restarts": spec.policy.max_restarts,
        "max_retries": spec.policy.max_retries,
        "resume": resume,
        "created_at": now,
        "steps": spec.train.steps,
    }
    return row, checked


def _refuse_null_characters(value: Any, field: str = "") -> None:
    """Neither databases nor file systems keep them. `value` is the spec as plain JSON."""
    if isinstance(value, str) and "\0" in value:
        raise InvalidSpec("The text holds a null character.", field=field, remedy="Remove it.")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        _refuse_null_characters(name, field)
        _refuse_null_characters(part, f"{field}.{name}".lstrip("."))


def _resume(settings: Settings, train: TrainSpec, source: RowMapping | None) -> str | None:
    """The checkpoint that is meant by `resume_from`, of which `source` is the job of that id or name."""
    if train.resume_from is None:
        return None
    saved_by = None if source is None else TrainSpec.model_validate(source["spec"]["train"])
    if source is not None and saved_by is not None:
        root = saved_by.checkpoints(settings.storage, source["id"])
        found = resuming.resume_from_job(source["id"], source["checkpoint"], root, settings)
    else:
        found = resuming.resume_from_path(train.resume_from, settings)
    resuming.check_resumed(train, found, saved_by, settings.local_files)
    return found


async def cancel(store: Store, job_id: str, actor: str) -> Job:
    """Ask for the job's end; harmless when repeated. Raises JobNotFound, or JobEnded when it succeeded or failed."""
    while True:
        try:
            async with store.write() as tx:
                state = State((await existing(tx, job_id))["state"])
                if state in (State.SUCCEEDED, State.FAILED):
                    raise JobEnded(f"{job_id} has {state} already.", remedy="Nothing is left to cancel.")
                if state not in (State.CANCELLING, State.CANCELLED):
                    to = State.CANCELLED if state in (State.QUEUED, State.PAUSED) else State.CANCELLING
                    await move(tx, job_id, state, to, Word(actor, time.time(), "cancelled_by_user"))
                return job_of(await existing(tx, job_id))
        except StateChanged:
            continue  # it moved between our look and our word; each time around something else made progress


async def list_jobs(
    store: Store,
    *,
    state: State | None = None,
    labels: dict[str, str] | None = None,
    name: str | None = None,
    text: str | None = None,
    order: Order = Order.NEWEST,
    cursor: str | None = None,
    limit: int = 50,
) -> Jobs:
    """Jobs that match every filter, in order. `text` is found in id or name. Raises InvalidCursor."""
    place = None if cursor is None else _place(cursor, order)
    filters = (name, text, *(labels or {}), *(labels or {}).values())
    if any("\0" in part for part in filters if part):
        return Jobs(items=[])
    wanted = job_rows.Filter(state, name, text, labels or {})
    async with store.read() as tx:
        rows = await job_rows.page(tx, wanted, place, limit + 1, order)
    items = [job_of(row) for row in rows[:limit]]
    return Jobs(items=items, next=_place_of(items[-1], order) if len(rows) > limit else None)


_CURSORS = {
    Order.NAME: re.compile(r"(?P<name>[a-z0-9-]{1,63})/(?P<id>job-[0-9a-z]{26})"),
    **dict.fromkeys((Order.NEWEST, Order.OLDEST), re.compile(r"(?P<id>job-[0-9a-z]{26})")),
}


def _place(cursor: str, order: Order) -> job_rows.Place:
    found = _CURSORS[order].fullmatch(cursor)
    if found is None:
        raise InvalidCursor(
            f"{cursor[:80]!r} is not a cursor.",
            field="cursor",
            remedy="Use `next` of the page before, in the same order.",
        )
    return job_rows.Place(**found.groupdict())


def _place_of(job: Job, order: Order) -> str:
    return f"{job.name}/{job.id}" if order == Order.NAME else job.id


async def get_job(store: Store, id_or_name: str) -> Job:
    """The job of this id, or the newest of this name. Raises JobNotFound."""
    async with store.read() as tx:
        return job_of(await existing(tx, id_or_name))


async def _find(tx: AsyncConnection, id_or_name: str) -> RowMapping | None:
    if "\0" in id_or_name:
        return None
    return await job_rows.by_id(tx, id_or_name) or await job_rows.newest_named(tx, id_or_name)


async def existing(tx: AsyncConnection, id_or_name: str) -> RowMapping:
    row = await _find(tx, id_or_name)
    if row is None:
        raise JobNotFound(
            f"There is no job {id_or_name[:80]!r}.", remedy="See `shardyard list` for the jobs that exist."
        )
    return row


async def metrics(store: Store, job: str, *, since: int = 0, max_points: int = 1000) -> Metrics:
    """Step records after step `since`, at most `max_points` (2 to 10,000). `job` is an id. Raises JobNotFound."""
    async with store.read() as tx:
        row = await existing(tx, job)
        evals = await event_rows.of_kind(tx, row["id"], "eval", max_points)
        span = await step_rows.span(tx, row["id"], since)
        low, high = span or (since + 1, since)
        whole = high - low < max_points
        if whole:
            steps = await step_rows.between(tx, row["id"], low, high)
        else:
            steps = await step_rows.extremes(tx, row["id"], low, high, max(1, (max_points - 2) // 2))
    points = [_step(step) for step in steps]
    return Metrics(
        points=points,
        last_step=high if span else since,
        downsampled=not whole,
        evals=evaluations(evals, since),
        cursor=cursor_of(row),
    )


def evaluations(rows: Any, since: int) -> list[Evaluation]:
    """In order of step; of a step that was validated again after a restart, the later one."""
    told = {int(row["data"]["step"]): row for row in rows}
    return [
        Evaluation(step=step, loss=row["data"].get("loss"), unigram_loss=row["data"].get("unigram_loss"), ts=row["ts"])
        for step, row in sorted(told.items())
        if step > since
    ]


async def logs(
    store: Store, job: str, *, rank: int | None = None, after: int = 0, limit: int = 1000, tail: int | None = None
) -> Logs:
    """Log lines after position `after`, or the last `tail` ones, of one rank or all. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        if tail is not None:
            rows = await log_rows.last(tx, job_id, rank, tail)
        else:
            rows = await log_rows.after(tx, job_id, rank, after, limit + 1)
    if tail is not None:
        return Logs(lines=[line_of(row) for row in rows])
    lines = [line_of(row) for row in rows[:limit]]
    return Logs(lines=lines, next=lines[-1].n if len(rows) > limit else None)


async def tail(
    store: Store,
    job: str,
    cursor: Cursor,
    *,
    with_logs: bool = False,
    rank: int | None = None,
    with_ranks: bool = False,
    limit: int = 500,
) -> Tail:
    """What happened to the job (an id) after `cursor`: call again with the cursor it returns until `done`.

    Of samples of the ranks only the newest: who comes late has missed nothing that is still true. One short query when nothing is new.
    Raises JobNotFound.
    """
    async with store.read() as tx:
        # The state is read first: once it is final, nothing is stored any more, so short reads below are the end.
        head = await job_rows.positions(tx, job)
        if head is None:
            raise JobNotFound(f"There is no job {job[:80]!r}.", remedy="See `shardyard list` for the jobs that exist.")
        more_events = head["event_pos"] > cursor.event
        events = await event_rows.after(tx, job, cursor.event, limit) if more_events else ()
        steps = await step_rows.after(tx, job, cursor.step, limit) if head["step_pos"] > cursor.step else ()
        more_logs = with_logs and head["log_pos"] > cursor.log
        lines = await log_rows.after(tx, job, rank, cursor.log, limit) if more_logs else ()
        more_ranks = with_ranks and head["rank_pos"] > cursor.ranks
        samples = await rank_rows.before(tx, job, None, 1) if more_ranks else ()
    items = _in_order(cursor, limit, events, steps, lines, samples)
    state = State(head["state"])
    done = state in FINAL and max(len(events), len(steps), len(lines)) < limit
    return Tail(items, items[-1].cursor if items else cursor, state, done)


def _in_order(cursor: Cursor, limit: int, events: Any, steps: Any, lines: Any, samples: Any) -> list[TailItem]:
    """By time, but each table in the order of its positions; of equal times the events last, so that an end is last."""
    told = (
        [
            TailItem("rank_metrics", row["ts"], sample_of(row).model_dump(), Cursor(ranks=row["position"]))
            for row in samples
        ],
        [TailItem("log", row["ts"], _log_data(row), Cursor(log=row["position"])) for row in lines],
        [TailItem("step", row["ts"], _step_data(row), Cursor(step=row["position"])) for row in steps],
        [TailItem(row["kind"], row["ts"], row["data"], Cursor(event=row["position"])) for row in events],
    )
    items = []
    # A table that was cut at the limit may go on before what the others tell next: stop where the first of them ends.
    cut = min((part[-1].ts for part in told if len(part) == limit), default=inf)
    merged = list(merge(*told, key=attrgetter("ts")))
    # A clock that was set back may leave nothing before the cut: then order is worth less than going on.
    for item in list(takewhile(lambda item: item.ts <= cut, merged)) or merged:
        cursor = Cursor(*map(max, cursor, item.cursor))
        items.append(TailItem(item.kind, item.ts, item.data, cursor))
    return items


def job_of(row: RowMapping) -> Job:
    return Job(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        reason=row["reason"],
        message=row["message"],
        labels=row["labels"],
        spec=row["spec"],
        layout=row["layout"],
        batch=row["batch"],
        world_size=row["world_size"],
        device=row["device"],
        attempt=row["attempt"],
        restarts=row["restarts"],
        budgets=_budgets(row),
        retry_at=_retry_at(row),
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        progress=_progress(row),
        summary=row["summary"],
        checkpoint=row["checkpoint"],
        parent=job_in(row["resume"]) if row["resume"] else None,
        cursor=cursor_of(row),
    )


def _budgets(row: RowMapping) -> Budgets:
    return Budgets(
        restarts=Budget(used=row["restarts"], most=row["max_restarts"]),
        retries=Budget(used=row["retries"], most=row["max_retries"]),
        repairs=Budget(used=row["repairs"], most=row["spec"].get("policy", {}).get("max_repairs", 0)),
    )


def _retry_at(row: RowMapping) -> float | None:
    waits = row["state"] == State.QUEUED and row["retry_at"] > time.time()
    return float(row["retry_at"]) if waits else None


def _progress(row: RowMapping) -> Progress | None:
    if row["step"] is None:
        return None
    return Progress(**{name: row[name] for name in Progress.model_fields})


def cursor_of(row: RowMapping) -> Cursor:
    return Cursor(row["event_pos"], row["step_pos"], row["log_pos"])


def _step(row: RowMapping) -> Step:
    return Step(**{name: row[name] for name in _STEP_FIELDS})


def _step_data(row: RowMapping) -> dict[str, Any]:
    return {name: row[name] for name in _STEP_FIELDS if name != "ts"}


def line_of(row: RowMapping) -> LogLine:
    return LogLine(
        n=row["position"],
        rank=row["rank"],
        attempt=row["attempt"],
        line=row["line"],
        stream=row["stream"],
        text=row["text"],
        ts=row["ts"],
    )


def _log_data(row: RowMapping) -> dict[str, Any]:
    names = ("rank", "attempt", "line", "stream", "text")
    return {"n": row["position"], **{name: row[name] for name in names}}
