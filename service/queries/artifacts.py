"""Reads the files that a job's programs logged: pages of them, and where the content of one is (`stored_file.py` sends it)."""

from dataclasses import dataclass

from sqlalchemy.engine import RowMapping

from ..errors import ArtifactNotFound, ArtifactStorageFailed, InvalidCursor
from ..schemas.artifact import LoggedArtifact, LoggedArtifacts
from ..settings import Settings
from ..store import artifacts as rows
from ..store.engine import Store
from .jobs import existing
from .stored_file import StoredFile


@dataclass(frozen=True)
class Content:
    """A file, and where its content is."""

    artifact: LoggedArtifact
    file: StoredFile


async def page(
    store: Store, job: str, *, prefix: str = "", kind: str | None = None, after: str | None = None, limit: int = 100
) -> LoggedArtifacts:
    """One page of the files of a job (id or name). Raises JobNotFound, InvalidCursor."""
    place = None if after is None else _place(after)
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        if "\0" in prefix:
            return LoggedArtifacts(items=[])
        found = await rows.page(tx, job_id, prefix=prefix, kind=kind, after=place, limit=limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    return LoggedArtifacts(
        items=[_artifact(row) for row in found[:limit]], next=None if last is None else f"{last['step']}/{last['name']}"
    )


async def find(
    store: Store, settings: Settings, job: str, name: str, step: int | None, sha256: str | None = None
) -> Content:
    """A file at a step (None: the one without a step, else the newest). Raises JobNotFound, ArtifactNotFound.

    With a `sha256` a file of another content, such as one that was logged again, is not found.
    """
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        row = None if "\0" in name else await rows.get(tx, job_id, name, step)
    if row is None or sha256 not in (None, row["sha256"]):
        at = "" if step is None else f" at step {step}"
        remedy = "GET /v1/jobs/JOB/artifacts lists those that exist."
        raise ArtifactNotFound(f"The job has no file {name[:80]!r}{at}.", field="name", remedy=remedy)
    one = _artifact(row)
    file = StoredFile(settings.artifacts(job_id), one.sha256, one.bytes, one.sha256, ArtifactStorageFailed)
    return Content(one, file)


def _place(after: str) -> rows.Key:
    step, _, name = after.partition("/")
    number = step.removeprefix("-")
    if not name or "\0" in name or not (number.isascii() and number.isdigit() and len(number) < 17):
        raise InvalidCursor(
            f"{after[:80]!r} is not a cursor.", field="after", remedy="Use the `next` of the page before."
        )
    return name, int(step)


def _artifact(row: RowMapping) -> LoggedArtifact:
    known = {name: row[name] for name in ("name", "type", "rank", "bytes", "sha256", "media_type")}
    return LoggedArtifact(**known, step=None if row["step"] == rows.NO_STEP else row["step"], at=row["ts"])
