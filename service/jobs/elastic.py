"""The forms of an elastic job as they lie in its row: the queue chooses one by the row alone, and the row then says what it is.

`elastic` holds them, the largest first, null of a job that has one form only; `elastic_at` is the time, by the database's clock, from
which another is taken: of a queued job a smaller one than the row says, of a running one a larger.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.elastic_layouts import Form
from ...workers.messages.event import ReshardEvent, to_json
from ...workers.messages.incident_events import ReshardReason
from ..policies.queue import Waiting
from ..spec import JobSpec, Policy
from ..store import events, jobs
from ..store.dialect import unix_now

#: A job that was placed does not grow before so many grace times have gone by: each change costs a save and a start.
SETTLED: Final = 5.0
#: The devices of a gang that has just ended are seen to be free after so many seconds at most.
FREED_S: Final = 3.0


def columns(spec: JobSpec, batch: object, forms: Sequence[Form]) -> dict[str, Any]:
    """What a job's row says of its layout."""
    layout = spec.train.layout
    least = min((form.world_size for form in forms), default=layout.world_size)
    return {
        "spec": spec.model_dump(mode="json", by_alias=True),
        "layout": str(layout),
        "batch": str(batch),
        "world_size": layout.world_size,
        "tensor": layout.tensor,
        "shape": Waiting("", least, layout.tensor, spec.device, spec.policy.spares).shape,
        "elastic": [asdict(form) for form in forms] or None,
    }


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two specs ask for the same, whatever degree an elastic one has just now."""
    return _without_degree(before) == _without_degree(after)


def _without_degree(spec: dict[str, Any]) -> dict[str, Any]:
    layout = spec["train"]["layout"]
    if not layout.get("elastic"):
        return spec
    return spec | {"train": spec["train"] | {"layout": layout | {"data": None}}}


def grace_s(row: RowMapping) -> float:
    """How long the job waits for devices before it takes fewer, or more; `row` has its `spec`."""
    default = float(Policy.model_fields["elastic_grace_s"].default)
    return float(row["spec"].get("policy", {}).get("elastic_grace_s", default))


def patience_s(row: RowMapping, lost: bool) -> float:
    """How long a job that is queued again waits for as many devices as it had; its gang that `lost` some has waited already."""
    return min(grace_s(row), FREED_S) if lost else grace_s(row)


def sizes(row: RowMapping) -> list[int]:
    """World sizes that a queued job may take now, the one it prefers first; `row` says whether it is `impatient`."""
    if not row["elastic"]:
        return [row["world_size"]]
    every = [form["world_size"] for form in row["elastic"]]
    return every if row["impatient"] else [size for size in every if size >= row["world_size"]]


def may_shrink(row: RowMapping) -> bool:
    """Whether the job has a smaller form than its row says."""
    return bool(row["elastic"]) and (smallest(row) or 0) < row["world_size"]


def larger(row: RowMapping) -> list[int]:
    """World sizes above the one that the row says, the largest first."""
    return [form["world_size"] for form in row["elastic"] or () if form["world_size"] > row["world_size"]]


def smallest(row: RowMapping) -> int | None:
    """The world size below which it never goes; None of a job with one form."""
    return min(form["world_size"] for form in row["elastic"]) if row["elastic"] else None


async def begin(tx: AsyncConnection, job_id: str, world_size: int, actor: str) -> dict[str, Any]:
    """What changes in the row of a queued job that starts in this size, told if it is another than its row says."""
    row = await jobs.by_id(tx, job_id)
    assert row is not None
    settled = {"elastic_at": unix_now(tx) + SETTLED * grace_s(row)}
    if world_size == row["world_size"]:
        return settled
    reason: ReshardReason = "no_room" if world_size < row["world_size"] else "devices_free"
    return settled | await take(tx, row, world_size, reason, actor)


async def take(
    tx: AsyncConnection, row: RowMapping, world_size: int, reason: ReshardReason, actor: str
) -> dict[str, Any]:
    """Tell that the job goes on in another form; returns the columns of its row that change."""
    form = next(form for form in row["elastic"] if form["world_size"] == world_size)
    change = ReshardEvent(before=row["layout"], after=form["layout"], reason=reason)
    event = {"attempt": row["attempt"], "kind": change.kind, "ts": time.time(), "actor": actor}
    await events.append(tx, row["id"], [event | {"data": to_json(change)}])
    train = row["spec"]["train"]
    spec = row["spec"] | {"train": train | {"layout": train["layout"] | {"data": form["data"]}}}
    return {"spec": spec, **{name: form[name] for name in ("layout", "batch", "world_size")}}
