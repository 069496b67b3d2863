"""The layouts of an elastic job as its row stores them. The queue chooses a layout by the row alone, and writes it into the row.

`elastic` holds the layouts, largest first; it is null if the job has only one. `elastic_at` is the time, by the database's clock, from
which another layout may be taken: a smaller one for a queued job, a larger one for a running job.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.elastic_layouts import ElasticLayout
from ...workers.messages.event import ReshardEvent, to_json
from ...workers.messages.incident_events import ReshardReason
from ..policy_spec import CommonPolicy
from ..spec import AnySpec, CommandSpec, JobSpec
from ..store import events, jobs
from ..store.dialect import unix_now
from . import queued_job

#: Grace times for which a placed job does not grow: each change costs a save and a start.
SETTLED: Final = 5.0
#: Seconds after which the devices of an ended gang appear free, at most.
FREED_S: Final = 3.0


def columns(spec: JobSpec, batch: object, layouts: Sequence[ElasticLayout]) -> dict[str, Any]:
    """The columns of a job's row that describe its layout."""
    return _columns(spec, str(spec.train.layout), str(batch), layouts)


def columns_of_command(spec: CommandSpec) -> dict[str, Any]:
    """As `columns`, for a job that runs a command. Each number of ranks is a layout."""
    layouts = [ElasticLayout(ranks, ranks, _layout_of_command(ranks), "") for ranks in spec.sizes]
    return _columns(spec, _layout_of_command(spec.ranks), "", layouts if len(layouts) > 1 else ())


def _columns(spec: AnySpec, layout: str, batch: str, layouts: Sequence[ElasticLayout]) -> dict[str, Any]:
    least = min((layout.world_size for layout in layouts), default=spec.world_size)
    return {
        "spec": spec.model_dump(mode="json", by_alias=True),
        "layout": layout,
        "batch": batch,
        "world_size": spec.world_size,
        "tensor": spec.together,
        "wanted_device": spec.device,
        "shape": replace(queued_job.waiting(spec), world_size=least).shape,
        "elastic": [asdict(layout) for layout in layouts] or None,
    }


def _layout_of_command(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two specs request the same, apart from the present data degree, or ranks, of an elastic job.

    Whether the layout advisor chose a layout makes no difference.
    """
    return _without_degree(before) == _without_degree(after)


def _without_degree(spec: dict[str, Any]) -> dict[str, Any]:
    if spec.get("elastic"):
        return spec | {"ranks": None}
    if "train" not in spec:
        return spec
    layout = spec["train"].get("layout", {})
    data = None if layout.get("elastic") else layout.get("data")
    return spec | {"train": spec["train"] | {"layout": layout | {"data": data, "auto": None}}}


def grace_s(row: RowMapping) -> float:
    """Seconds that the job waits for devices before it takes fewer, or more. `row` has its `spec`."""
    default = float(CommonPolicy.model_fields["elastic_grace_s"].default)
    return float(row["spec"].get("policy", {}).get("elastic_grace_s", default))


def patience_s(row: RowMapping, lost: bool) -> float:
    """Seconds that a requeued job waits for as many devices as it had. If its gang `lost` devices, it has waited already."""
    return min(grace_s(row), FREED_S) if lost else grace_s(row)


def sizes(row: RowMapping) -> list[int]:
    """World sizes that a queued job may take now, its preferred one first. `row` has `impatient`."""
    if not row["elastic"]:
        return [row["world_size"]]
    every = [one["world_size"] for one in row["elastic"]]
    return every if row["impatient"] else [size for size in every if size >= row["world_size"]]


def may_shrink(row: RowMapping) -> bool:
    """Whether the job has a smaller layout than its present one."""
    return bool(row["elastic"]) and (smallest(row) or 0) < row["world_size"]


def larger(row: RowMapping) -> list[int]:
    """World sizes above the present one, largest first."""
    return [one["world_size"] for one in row["elastic"] or () if one["world_size"] > row["world_size"]]


def smallest(row: RowMapping) -> int | None:
    """The job's minimum world size; None for a job with one layout."""
    return min(one["world_size"] for one in row["elastic"]) if row["elastic"] else None


async def begin(tx: AsyncConnection, job_id: str, world_size: int, actor: str) -> dict[str, Any]:
    """The columns that change when a queued job starts with this world size. Appends an event if the size changes."""
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
    """Append the event of the job's change of layout. Returns the columns of its row that change."""
    layout = next(layout for layout in row["elastic"] if layout["world_size"] == world_size)
    change = ReshardEvent(before=row["layout"], after=layout["layout"], reason=reason)
    event = {"attempt": row["attempt"], "kind": change.kind, "ts": time.time(), "actor": actor}
    await events.append(tx, row["id"], [event | {"data": to_json(change)}])
    changed = {"spec": _with_degree(row["spec"], layout["data"])}
    return changed | {name: layout[name] for name in ("layout", "batch", "world_size")}


def _with_degree(spec: dict[str, Any], degree: int) -> dict[str, Any]:
    if "train" not in spec:
        return spec | {"ranks": degree}
    train = spec["train"]
    return spec | {"train": train | {"layout": train["layout"] | {"data": degree}}}
