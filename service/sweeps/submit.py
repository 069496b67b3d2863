"""Submits and cancels sweeps. A dispatcher does the rest (`advance.py`)."""

import time
from collections.abc import Sequence
from typing import Any

from ...strategies.layout import Refusal
from ..errors import IdempotencyConflict, InvalidSpec, SweepEnded
from ..ids import job_in, new_id
from ..jobs import code_archives
from ..jobs import submit as submitting
from ..queries import sweeps as queries
from ..schemas.model import Reference
from ..schemas.sweep import SweepDetail
from ..settings import Settings
from ..spec import AnySpec
from ..spec_files import SpecFiles
from ..store import sweeps as rows
from ..store.engine import Store
from ..sweep_spec import Sweep
from .points import Point
from .request import SweepRequest, metric_of, rungs_of


async def submit(
    store: Store,
    settings: Settings,
    request: SweepRequest,
    first: AnySpec,
    asked: submitting.Request,
    files: SpecFiles | None = None,
) -> tuple[SweepDetail, bool]:
    """Check the job of the first trial as a submission of it would, and store the sweep with its trials.

    False beside the sweep: it was there before (the same key and document). Raises what `submit` of jobs raises,
    and then nothing is stored.
    """
    idempotency_key, digest = asked.idempotency_key, asked.body_hash
    if idempotency_key is not None:
        async with store.read() as tx:
            known = await rows.by_key(tx, idempotency_key)
        if known is not None:
            return await _replayed(store, known["id"], known["body_hash"] == digest), False
    rungs = _rungs(first, request.sweep)
    row, _ = await submitting.row_of(store, settings, first, files or SpecFiles())
    if rungs and "train" in row["spec"]:
        _refuse_passed(rungs[0], row["resume"])
    now, count = time.time(), request.sweep.number_of_trials
    row |= {"parent": job_in(row["resume"]) if row["resume"] else None, "retry_of": None}
    values = {
        "id": new_id("sweep", now),
        "name": first.name,
        "state": "running",
        "spec": _naming(request.spec, row["spec"], row["resume"]),
        "parent": row["parent"],
        "sweep": request.sweep.model_dump(mode="json", exclude_none=True),
        "trials": count,
        "actor": asked.actor,
        "idempotency_key": idempotency_key,
        "body_hash": digest,
        "created_at": now,
    }
    given: Sequence[Point | None] = request.points or [None] * count
    trials = [{"number": at, "standing": "waiting", "parameters": point} for at, point in enumerate(given)]
    async with store.write() as tx:
        await submitting.keep_sources(tx, row)
        await code_archives.use_all(tx, request.archives, "sweep.parameters.code.archive")
        created = await rows.create(tx, values, trials)
        stored = values if created else await rows.by_key(tx, idempotency_key or "")
    assert stored is not None
    if not created:
        return await _replayed(store, str(stored["id"]), stored["body_hash"] == digest), False
    return await queries.get_sweep(store, str(values["id"])), True


def _rungs(first: AnySpec, sweep: Sweep) -> list[int]:
    """The steps at which trials are compared. Raises InvalidSpec, also for a metric that the jobs never report."""
    try:
        metric_of(first, sweep)
        return rungs_of(first, sweep)
    except Refusal as refusal:
        raise InvalidSpec(refusal.message, field=refusal.field, remedy=refusal.remedy) from None


def _refuse_passed(rung: int, resume: str | None) -> None:
    """Raise InvalidSpec if the trials continue a checkpoint that is not before the first rung, as far as its folder's name has its step."""
    step = (resume or "").rstrip("/").rpartition("/step-")[2]
    if step.isdecimal() and rung <= int(step):
        raise InvalidSpec(
            f"The checkpoint is of step {int(step)}, and step numbers continue from there: no trial comes to step {rung}.",
            field="sweep.asha.min_steps",
            remedy=f"Give more than {int(step)}.",
        )


def _naming(spec: dict[str, Any], stored: dict[str, Any], resume: str | None) -> dict[str, Any]:
    """The spec of all trials with the version of a model, or else the checkpoint, with which the first trial begins.

    Meanwhile an alias may move, a newer job may have the name of this one, and a job that trains saves later checkpoints.
    """
    part = spec.get("train") if "train" in stored else spec
    if not isinstance(part, dict) or not part.get("resume_from"):
        return spec
    pinned = Reference.parse(str(part["resume_from"])) is not None
    named = {"resume_from": stored.get("train", stored)["resume_from"] if pinned else resume}
    return {**spec, "train": {**part, **named}} if "train" in stored else {**spec, **named}


async def _replayed(store: Store, sweep_id: str, same: bool) -> SweepDetail:
    if same:
        return await queries.get_sweep(store, sweep_id)
    raise IdempotencyConflict(
        f"This idempotency key belongs to {sweep_id}, which was submitted with another body.",
        field="Idempotency-Key",
        remedy="Use a new key for a new sweep.",
    )


async def cancel(store: Store, sweep_id: str) -> SweepDetail:
    """Cancel all trials that have not ended. Harmless if repeated. Raises SweepNotFound, or SweepEnded if it succeeded or failed."""
    async with store.write() as tx:
        row = await queries.existing(tx, sweep_id)
        if row["state"] in ("succeeded", "failed"):
            raise SweepEnded(f"{row['id']} has {row['state']} already.", remedy="An ended sweep cannot be cancelled.")
        await rows.cancel(tx, row["id"])
    return await queries.get_sweep(store, row["id"])
