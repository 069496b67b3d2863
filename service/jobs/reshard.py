"""Changes the layout of a job that has not ended: its gang saves and ends, and the next attempt resumes on the new layout.

The job's row has the new layout as soon as it is requested, so that the next gang uses it whatever happens to the old one.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...strategies.layout import Refusal
from ...workers import own_plan
from ...workers.messages.event import ReshardEvent, to_json
from .. import capacity
from ..errors import InvalidLayout, JobEnded, JobPausing, StateChanged
from ..queries.jobs import existing, job_of
from ..schemas.job import Job
from ..schemas.problem import FieldError
from ..settings import Settings
from ..spec import AnySpec, CommandSpec, JobSpec
from ..spec_files import SpecFiles
from ..states import MOVES, State
from ..store import certificates, events, submitted_specs
from ..store import jobs as job_rows
from ..store.dialect import unix_now
from ..store.engine import Store
from . import elastic, memory_plan, validation
from .transitions import Cause, move

#: A job in these states holds no device, and keeps its state when its layout changes.
_RESTING = (State.QUEUED, State.PAUSED, State.RESHARDING)


async def reshard(
    store: Store, settings: Settings, job_id: str, spec: AnySpec, actor: str, files: SpecFiles | None = None
) -> Job:
    """Continue the job as `spec`, which differs from its own only in the layout, or in its ranks. Harmless if repeated.

    Its warnings name the elastic layouts that it does not take. Raises JobNotFound, JobEnded, JobPausing, InvalidLayout, TooManyRanks,
    DoesNotFit; then nothing is changed.
    """
    checked = None
    if not isinstance(spec, CommandSpec):
        spec = _by_hand(spec)
        checked = await validation.check(spec, settings, files or SpecFiles())
    while True:
        try:
            async with store.read() as tx:
                cluster = (await existing(tx, job_id))["cluster"]
                known = await capacity.known(tx, settings, only=cluster)
            columns, warnings = await _columns(spec, checked, known)
            async with store.write() as tx:
                before = await existing(tx, job_id)
                if before["cluster"] != cluster:
                    continue  # it was placed between our read and our write
                if not elastic.same(before["spec"], columns["spec"]):
                    also = {"elastic_at": unix_now(tx) + spec.policy.elastic_grace_s if columns["elastic"] else None}
                    await _change(tx, before, columns | also, actor)
                return job_of(await existing(tx, job_id)).model_copy(update={"warnings": warnings})
        except StateChanged:
            continue  # it moved between our read and our write; each time around something else made progress


async def _columns(
    spec: AnySpec, checked: validation.Checked | None, known: Sequence[capacity.Nodes]
) -> tuple[dict[str, Any], list[FieldError]]:
    """The columns of the new layout, which can run on one of the clusters, and warnings. A job that was placed has only its own."""
    clusters = [one.inventory for one in known]
    if isinstance(spec, CommandSpec):
        validation.check_ranks(spec, spec.sizes[-1], clusters)
        return elastic.columns_of_command(spec), []
    assert checked is not None
    validation.check_ranks(spec, checked.least_ranks(spec), clusters)
    planned = await asyncio.to_thread(memory_plan.planned, spec, checked, known)
    if planned is None:
        return elastic.columns(spec, checked.batch, checked.elastic_layouts), []
    spec, checked = planned.spec, planned.checked
    return elastic.columns(spec, checked.batch, checked.elastic_layouts), planned.warnings


def _by_hand(spec: JobSpec) -> JobSpec:
    """The spec with a layout that the layout advisor has not chosen, and without a plan of another one.

    Raises InvalidLayout for a layout that the advisor has yet to choose.
    """
    try:
        spec.train.refuse_undecided()
    except Refusal as refusal:
        raise InvalidLayout(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None
    layout = spec.train.layout.model_copy(update={"auto": None})
    return spec.model_copy(update={"train": own_plan.kept(spec.train.model_copy(update={"layout": layout}))})


async def _change(tx: AsyncConnection, row: RowMapping, columns: dict[str, Any], actor: str) -> None:
    state, now = State(row["state"]), time.time()
    if state == State.PAUSING:
        raise JobPausing(f"{row['id']} is saving.", remedy="Change its layout when it is paused.")
    if state not in _RESTING and State.RESHARDING not in MOVES[state]:
        raise JobEnded(f"{row['id']} is {state}.", remedy="Submit a job with resume_from instead.")
    await job_rows.lock(tx, row["id"])  # after a certificate that is being stored
    await submitted_specs.note_layout(tx, row["id"])
    await certificates.remove(tx, row["id"])  # it is of the layout before
    change = ReshardEvent(before=row["layout"], after=columns["layout"])
    event = {"attempt": row["attempt"], "kind": change.kind, "ts": now, "actor": actor, "data": to_json(change)}
    if state in _RESTING:
        changed = await job_rows.change_state(tx, row["id"], state, None, columns)
        if changed is None:
            raise StateChanged(f"{row['id']} is no longer {state}.")
        await events.insert(tx, event | {"job_id": row["id"], "position": changed["event_pos"]})
        return
    await events.append(tx, row["id"], [event])
    cause = Cause(actor, now, "reshard", f"continues as {columns['layout']}")
    await move(tx, row["id"], state, State.RESHARDING, cause, also=columns)
