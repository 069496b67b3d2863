"""Files that a job's programs logged: what ranks need to store them, and how many a job may have."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.artifact import check_name, check_step
from ...workers.messages.event import ArtifactsEvent, IncidentEvent
from ...workers.program.program import ArtifactStorage
from ..policies.limits import ArtifactLimits
from ..settings import Settings
from ..store import artifacts as rows

_DIGITS: Final = frozenset("0123456789abcdef")


def storage(settings: Settings, job_id: str) -> ArtifactStorage:
    """What a rank needs to store files."""
    limits = settings.rules.artifacts
    spool = str(settings.cache / "artifacts")
    return ArtifactStorage(settings.artifacts(job_id), spool, limits.file_bytes, limits.bytes, limits.files)


def check(event: ArtifactsEvent) -> None:
    """Raise ValueError for names, steps or digests that no rank sends: they become paths."""
    for one in event.artifacts:
        check_name(one.name)
        check_step(one.step)
        if len(one.sha256) != 64 or not set(one.sha256) <= _DIGITS or one.bytes < 0 or len(one.media_type) > 80:
            raise ValueError(f"{one.name[:80]!r} is no stored file")


def rows_of(event: ArtifactsEvent, **same: Any) -> list[dict[str, Any]]:
    """The rows of an event's files. `same`: job_id, run and ts. Raises ValueError for what no rank sends."""
    check(event)
    fields = ("name", "type", "bytes", "sha256", "media_type")
    return [
        {**same, **{name: getattr(one, name) for name in fields}, "rank": event.rank, "step": _number(one.step)}
        for one in event.artifacts
    ]


def _number(step: int | None) -> int:
    return rows.NO_STEP if step is None else step


async def record(
    tx: AsyncConnection, job_id: str, found: Sequence[Mapping[str, Any]], limits: ArtifactLimits
) -> IncidentEvent | None:
    """Store the newest row of each name and step; an incident if some exceed the limits. Call with the job's row locked."""
    newest = {(row["name"], row["step"]): row for row in sorted(found, key=lambda row: int(row["run"]))}
    known = await rows.sizes(tx, job_id, list(newest))
    count, size = await rows.totals(tx, job_id)
    kept, dropped = [], []
    for key, row in newest.items():
        more, larger = int(key not in known), row["bytes"] - known.get(key, 0)
        if (more and count + more > limits.files) or (larger > 0 and size + larger > limits.bytes):
            dropped.append(row["name"])
            continue
        count, size = count + more, size + larger
        kept.append(row)
    await rows.put(tx, kept)
    if not dropped:
        return None
    most = f"{limits.files:,} files and {limits.bytes:,} bytes"
    message = f"A job may log {most}; {dropped[0]} and {len(dropped) - 1:,} more of this batch are not listed."
    return IncidentEvent(cause="artifacts_dropped", message=message)
