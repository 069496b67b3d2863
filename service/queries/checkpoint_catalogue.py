"""The state of a job's checkpoints: present, corrupt or deleted, one state per step.

present   saved, and not known otherwise            a save of that step; a verification that finds it valid
corrupt   files differ from their checksums         a restore that skipped it     ; a verification or export that found it so
deleted   it is not in its folder                   a later save, which reports what it kept; a verification or export

The service does not read the storage, which it may not reach. Files that a user damages or deletes are found by a verification. A
checkpoint that is corrupt or deleted cannot be resumed from or exported. A corrupt one can be verified again, as its disk may be back.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import CheckpointEvent, IncidentEvent
from ..errors import CheckpointCorrupt, CheckpointDeleted
from ..ids import job_in
from ..store import checkpoint_pins, events, models
from ..store import checkpoints as rows

CheckpointState = Literal["present", "corrupt", "deleted"]

PRESENT: Final = "present"
#: Saves among which a later one is looked for that was reported before.
_LATEST: Final = 16
_FOUND: Final[Mapping[str, CheckpointState]] = {"valid": "present", "corrupt": "corrupt", "deleted": "deleted"}
_FAILED: Final[Mapping[str, CheckpointState]] = {"checkpoint_corrupt": "corrupt", "checkpoint_deleted": "deleted"}
_OTHER: Final = "Take another checkpoint: shardyard checkpoints {job} has the state of each."
_BEGINNING: Final = "Set {field} to another checkpoint: shardyard checkpoints {job} has the state of each."


async def is_known(tx: AsyncConnection, job: RowMapping, event: CheckpointEvent) -> bool:
    """Whether this save of a training is stored. An attempt that restores a checkpoint reports it, in case its save was not reported."""
    if "train" not in job["spec"] or event.digest is None:
        return False
    if event.step not in await rows.states(tx, job["id"], [event.step]):
        return False  # as of nearly every save; a look into the events would read all of the job's
    stored = await events.of_step(tx, job["id"], CheckpointEvent.kind, event.step)
    return stored is not None and bool(stored["data"].get("digest") == event.digest)


async def is_late(
    tx: AsyncConnection, job: RowMapping, event: CheckpointEvent, pending: Iterable[Mapping[str, Any]]
) -> bool:
    """Whether a later save of the attempt was reported before this one, which did not know it.

    Ranks of a program take turns to complete a checkpoint, and the event of one may come after another's. Of a training one rank reports.
    A save that knows the highest step which is there came after that one's, and has itself removed what it did not keep: steps of another
    trainer of the job, or corrupt ones, may be higher. `pending`: rows of events that are not stored yet.
    """
    if "train" in job["spec"] or event.kept is None:
        return False
    stored = await events.of_kind_before(tx, job["id"], CheckpointEvent.kind, None, _LATEST)
    saves: list[Mapping[Any, Any]] = [*stored, *(row for row in pending if row["kind"] == CheckpointEvent.kind)]
    steps = [int(row["data"]["step"]) for row in saves if row["attempt"] == job["attempt"]]
    known = await rows.states(tx, job["id"], [step for step in steps if step > event.step])
    highest = max((step for step, state in known.items() if state == PRESENT), default=None)
    return highest is not None and highest not in event.kept


async def saved(tx: AsyncConnection, job_id: str, event: CheckpointEvent, late: bool = False) -> None:
    """Apply a checkpoint event. `kept`: the steps of all checkpoints that exist after the save. `late`: a later save says which do."""
    await rows.put(tx, job_id, event.step, PRESENT)
    if event.digest is not None:
        await checkpoint_pins.replaced(tx, job_id, event.step, event.digest)
    if event.kept is not None and not late:
        await rows.remove_all_but(tx, job_id, list(event.kept))
        await checkpoint_pins.remove_all_but(tx, job_id, list(event.kept))


async def is_newest(tx: AsyncConnection, job_id: str, event: CheckpointEvent) -> bool:
    """Whether no later checkpoint is there. A gang that was repaired from an older snapshot saves earlier steps again."""
    later = [step for step in event.kept or () if step > event.step]
    return PRESENT not in (await rows.states(tx, job_id, later)).values()


async def skipped(tx: AsyncConnection, job_id: str, incident: IncidentEvent) -> None:
    """Apply an incident event. If a restore skipped a corrupt checkpoint, `step` is that checkpoint's."""
    if incident.cause == "checkpoint_corrupt" and incident.step is not None:
        await rows.put(tx, job_id, incident.step, "corrupt")


async def seen(
    tx: AsyncConnection, job_id: str, at: tuple[int, int], result: Any, error: Mapping[str, str] | None
) -> None:
    """Apply the result or error of an operation on a checkpoint. `at`: its step, and the position of the event of its save."""
    step, position = at
    result = result or {}
    newest = await events.of_step(tx, job_id, "checkpoint", step)
    later = newest if newest is not None and newest["position"] > position else None
    if result.get("pinned") is True:
        await _pinned(tx, job_id, step, result["digest"], later)
    elif result.get("pinned") is False:
        await checkpoint_pins.remove(tx, job_id, step)
    verdict = result.get("verdict")
    state = _FAILED.get(error["code"]) if error else _FOUND.get(str(verdict))
    if state not in (None, PRESENT) and later is not None:
        return  # it was of files that a later save of the step has replaced
    if state == PRESENT and (await rows.states(tx, job_id, [step])).get(step) == "deleted":
        return  # a later save has removed it since
    if state is not None:
        await rows.put(tx, job_id, step, state)
    if state == "deleted":  # its pin was a file in its folder
        await checkpoint_pins.remove(tx, job_id, step)


async def _pinned(tx: AsyncConnection, job_id: str, step: int, digest: str, later: RowMapping | None) -> None:
    """Store a pin that found this manifest's checksum. `later`: the save of the step, if there is one, that the operation did not know.

    A later save may have come before the pin's file or after it: either way the pin keeps that save's files now.
    """
    of_later = None if later is None else later["data"].get("digest")
    await checkpoint_pins.put(tx, job_id, step, of_later or digest)
    if digest != of_later:
        await models.note_digest(tx, job_id, step, digest)


async def states(tx: AsyncConnection, job_id: str, steps: list[int]) -> dict[int, CheckpointState]:
    """The state of each of these steps' checkpoints."""
    known: Mapping[int, Any] = await rows.states(tx, job_id, steps)
    return {step: known.get(step, PRESENT) for step in steps}


async def refuse_unusable(
    tx: AsyncConnection, job_id: str, step: int, field: str, again: bool = False, remedy: str = _OTHER
) -> None:
    """Raise CheckpointDeleted or CheckpointCorrupt unless the checkpoint is present. `again`: a corrupt one may be used."""
    state = (await states(tx, job_id, [step]))[step]
    remedy = remedy.format(job=job_id, field=field)
    if state == "deleted":
        message = f"The checkpoint of step {step} of {job_id} was deleted, to make room or by hand."
        raise CheckpointDeleted(message, field=field, remedy=remedy)
    if state == "corrupt" and not again:
        message = f"Files of the checkpoint of step {step} of {job_id} are not as they were saved."
        raise CheckpointCorrupt(message, field=field, remedy=remedy)


async def refuse_unusable_path(tx: AsyncConnection, path: str, field: str, remedy: str = _BEGINNING) -> None:
    """As `refuse_unusable`, for the checkpoint in this folder, with which a job would begin. A folder that belongs to no job passes."""
    job_id, (_, _, step) = job_in(path), path.rstrip("/").rpartition("/step-")
    if job_id is not None and step.isascii() and step.isdecimal() and len(step) < 19:
        await refuse_unusable(tx, job_id, int(step), field, remedy=remedy)
