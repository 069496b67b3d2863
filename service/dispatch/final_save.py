"""The save after which a gang ends that was asked to: for how long the dispatcher waits for it, and what it reports if there was none.

A save that is cut off while it is written costs the steps since the newest checkpoint. So large checkpoints get more time than the setting.
"""

import time
from typing import Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import CheckpointEvent, IncidentEvent, to_json
from ..errors import LeaseLost
from ..settings import Settings
from ..states import HOLDING
from ..store import events, jobs, steps
from ..store.engine import Store
from ..store.leases import Lease

#: The wait, in multiples of the seconds of the job's newest save: storage may have become slower, and the step before takes time, too.
_TIMES: Final = 3.0
#: Saves among which the newest is looked for that took time: a checkpoint that was only restored is reported with 0 s.
_LATEST: Final = 16
#: Cause of an incident: a save failed, or was cut off.
_FAILED: Final = "checkpoint_failed"
#: Incidents after a checkpoint that are looked at.
_MOST: Final = 100


async def patience_s(store: Store, settings: Settings, job_id: str) -> float:
    """Seconds that the job's gang has to save and end."""
    async with store.read() as tx:
        saves = await events.of_kind_before(tx, job_id, CheckpointEvent.kind, None, _LATEST)
    took = (float(save["data"].get("seconds") or 0.0) for save in saves)
    newest_s = next((seconds for seconds in took if seconds > 0), 0.0)
    return max(settings.reshard_s, _TIMES * newest_s)


async def report_cut_off(store: Store, lease: Lease, waited_s: float) -> None:
    """Store that the attempt's steps since its newest checkpoint are lost, if there are any. Raises LeaseLost."""
    async with store.write() as tx:
        job = await jobs.locked(tx, lease.job_id, lease.token)
        if job is None:
            raise LeaseLost(f"{lease.job_id}: another dispatcher manages it now.")
        newest, saved = await steps.newest(tx, job), await events.newest(tx, job["id"], CheckpointEvent.kind)
        if job["state"] not in HOLDING or newest is None or newest["attempt"] != job["attempt"]:
            return
        if saved is not None and saved["attempt"] == job["attempt"] and saved["data"]["step"] >= newest["step"]:
            return
        last = await events.newest(tx, job["id"], IncidentEvent.kind)
        if last is not None and last["attempt"] == job["attempt"] and _is_report(last):
            return  # it was stored before: an answer of the database was lost, or another dispatcher has reported it
        message = (
            f"The gang did not save within {waited_s:,.0f} s (SHARDYARD_RESHARD_S, or three times as long as its newest save took); "
            "it is ended, and the steps since its newest checkpoint are lost."
        )
        lost = IncidentEvent(cause=_FAILED, message=message, step=newest["step"])
        row = {"attempt": job["attempt"], "kind": lost.kind, "ts": time.time(), "actor": lease.owner}
        await events.append(tx, job["id"], [{**row, "data": to_json(lost)}])


async def is_in_doubt(tx: AsyncConnection, job_id: str) -> bool:
    """Whether a save of the job has failed, or was cut off, since its newest checkpoint."""
    saved = await events.newest(tx, job_id, CheckpointEvent.kind)
    since = 0 if saved is None else int(saved["position"])
    later = await events.of_kind_after(tx, job_id, IncidentEvent.kind, since, None, _MOST)
    return any(row["data"]["cause"] == _FAILED for row in later)


def _is_report(incident: RowMapping) -> bool:
    """Whether a dispatcher has stored it."""
    return bool(incident["actor"] != "gang" and incident["data"]["cause"] == _FAILED)
