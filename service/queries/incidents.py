"""A job's incidents, each with its repair, as fields and as one paragraph."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.engine import RowMapping

from ...workers.messages.event import IncidentEvent, RepairEvent, read
from ...workers.messages.incident_events import CollectiveWait
from ..schemas.incident import Incident, Incidents, Repair, Stacks, Waiting
from ..store import events as event_rows
from ..store.engine import Store
from .jobs import existing

#: Incidents read beyond a page to find where the repairs of its last incident end.
_BEYOND = 100


async def newest(store: Store, job: str, *, before: int | None = None, limit: int = 100) -> Incidents:
    """Incidents of a job (id or name) before number `before`, newest first. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        found = (await event_rows.of_kind_before(tx, job_id, "incident", before, limit + 1))[::-1]
        shown = found[-limit:]
        beyond = []
        if before is not None:
            beyond = list(await event_rows.of_kind_after(tx, job_id, "incident", before - 1, None, _BEYOND))
        first = shown[0]["position"] if shown else 0
        repairs = await event_rows.of_kind_after(tx, job_id, "repair", first, None, limit + 1) if shown else []
    pairs = _pairs([*shown, *beyond])[: len(shown)]
    items = [_incident(row, _repair_of(row, following, repairs)) for row, following in reversed(pairs)]
    return Incidents(items=items, next=items[-1].position if len(found) > limit else None)


async def incidents(store: Store, job: str, *, after: int = 0, limit: int = 100) -> Incidents:
    """Incidents of a job (id or name) after number `after`, oldest first. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        found = await event_rows.of_kind_after(tx, job_id, "incident", after, None, limit + _BEYOND)
        first = found[0]["position"] if found else after
        repairs = await event_rows.of_kind_after(tx, job_id, "repair", first, None, limit) if found else []
    items = [_incident(row, _repair_of(row, following, repairs)) for row, following in _pairs(found)[:limit]]
    return Incidents(items=items, next=items[-1].position if len(found) > limit else None)


def _pairs(rows: Any) -> list[tuple[RowMapping, int | None]]:
    """Each row with the position of the next one that may have a repair of its own."""
    pairs: list[tuple[RowMapping, int | None]] = []
    end: int | None = None
    for row in reversed(rows):
        pairs.append((row, pairs[-1][1] if pairs and _died_together(row, pairs[-1][0]) else end))
        if row["data"].get("cause") not in _WITHOUT_REPAIR:
            end = row["position"]
    return pairs[::-1]


def _died_together(row: RowMapping, following: RowMapping) -> bool:
    """Whether both are nodes that one generation lost: one repair is for all of them."""
    facts = [(one["attempt"], one["data"].get("cause"), one["data"].get("generation")) for one in (row, following)]
    return facts[0] == facts[1] and facts[0][1] == "node_lost"


def _repair_of(row: RowMapping, following: int | None, repairs: Any) -> Repair | None:
    """The repair that was reported between this incident and the next one."""
    if row["data"].get("cause") in _WITHOUT_REPAIR:
        return None
    for repair in repairs:
        if row["position"] < repair["position"] and (following is None or repair["position"] < following):
            if repair["attempt"] != row["attempt"]:
                return None
            event = read(RepairEvent, repair["data"])
            return Repair(
                generation=event.generation,
                restored=event.restored,
                step=event.step,
                seconds=event.seconds,
                spares=list(event.spares),
            )
    return None


def _incident(row: RowMapping, repair: Repair | None) -> Incident:
    event = read(IncidentEvent, row["data"])
    return Incident(
        position=row["position"],
        ts=row["ts"],
        attempt=row["attempt"],
        cause=event.cause,
        rank=event.rank,
        node=event.node,
        generation=event.generation,
        step=event.step,
        message=event.message,
        traceback=event.traceback,
        stacks=[Stacks(ranks=list(one.ranks), stack=one.stack) for one in event.stacks or ()],
        waiting=[_waiting(one) for one in event.waiting or ()],
        nccl_ras=list(event.nccl_ras or ()),
        log=list(event.log),
        ranks=list(event.ranks or ()),
        repair=repair,
        summary=_summary(event, repair),
    )


def _waiting(wait: CollectiveWait) -> Waiting:
    return Waiting(
        ranks=list(wait.ranks),
        seconds=wait.seconds,
        group=wait.group,
        members=list(wait.members),
        op=wait.op,
        seq=wait.seq,
    )


#: Ray Train starts its own workers again.
RAY_WORKER: Final = "ray_worker_failed"

#: What happened, by cause; `{who}` is the rank and its node.
HAPPENED = {
    "rank_lost": "{who} was lost",
    "node_lost": "A node was lost",
    "hang": "{who} blocked the gang",
    RAY_WORKER: "{who} had a worker of Ray Train that failed",
    "slow_network": "The network of {who} is slow",
    "straggler": "{who} became slow",
    "straggler_over": "{who} is no longer slow",
    "loss_spike": "The loss rose suddenly",
    "supervisor_lost": "The gang's supervisor was lost",
    "journal_unreadable": "The journal of the gang's supervisor could not be read",
    "replica_mismatch": "{who} differs from its replicas",
    "exception": "{who} raised an exception",
    "placement_timeout": "The cluster had no room for the gang",
    "devices_lost": "Devices were lost for longer than the job waits for them",
    "start_failed": "{who} could not be started",
    "gang_error": "The gang's supervisor met an error",
    "other_version": "{who} has another version of Shardyard",
    "events_lost": "Events were lost on the way",
    "invalid_event": "An event could not be understood",
    "metrics_dropped": "The job logs too many metrics",
    "artifacts_dropped": "The job logs too many files, or too large ones",
    "metric_line_unusable": "{who} printed a line of metrics that cannot be used",
    "checkpoint_corrupt": "A checkpoint was corrupt and skipped",
    "checkpoint_failed": "A checkpoint could not be saved",
    "storage_unreachable": "The storage of the checkpoints did not answer",
    "environment_not_built": "{who} has no environment for its program",
    "package_index_unreachable": "{who} could not download packages",
    "files_not_fetched": "{who} could not fetch files of the job",
    "files_unreachable": "{who} could not reach a source of files",
    "files_no_room": "{who} had no room for files of the job",
    "cache_disk_full": "{who} had no room in its node's cache",
    "cache_disk_failed": "The disk with the cache of {who} failed",
    "not_prepared": "{who} could not prepare its program",
    "state_disk_full": "{who} had no room on its disk for training state",
    "state_disk_failed": "The disk with the training state of {who} failed",
    "device_failed": "The GPU of {who} failed",
    "export_failed": "The model could not be exported",
    "snapshots_off": "Snapshots do not fit in memory",
    "memory_off_plan": "The peak of memory is off its plan",
}

#: Incidents that do not interrupt training and so have no repair; a repair after them belongs to an earlier incident.
_WITHOUT_REPAIR = frozenset(
    {
        "events_lost",
        "invalid_event",
        "metrics_dropped",
        "artifacts_dropped",
        "metric_line_unusable",
        "checkpoint_corrupt",
        "checkpoint_failed",
        "export_failed",
        "storage_unreachable",
        "snapshots_off",
        "memory_off_plan",
        "loss_spike",
        "slow_network",
        "straggler",
        "straggler_over",
        "supervisor_lost",
    }
)


def _summary(incident: IncidentEvent, repair: Repair | None) -> str:
    who = "The gang" if incident.rank is None else f"Rank {incident.rank}" + _on(incident.node)
    when = f" after step {incident.step}" if incident.step else ""
    # A cause may be one that a user's own exception names, with any text.
    happened = HAPPENED[incident.cause].format(who=who) if incident.cause in HAPPENED else f"{who}: {incident.cause}"
    message = incident.message.strip().rstrip(".")
    what = happened + when + (f": {message}." if message else ".")
    return " ".join(filter(None, [what, _repaired(incident.cause, repair)]))


def _on(node: str | None) -> str:
    return f" on node {node[:12]}" if node else ""


def _repaired(cause: str, repair: Repair | None) -> str:
    if repair is None:
        return ""
    if cause == RAY_WORKER:
        return f"Ray Train started all its workers again {repair.seconds:.1f} s later."
    source = "the newest checkpoint" if repair.restored is None else f"step {repair.restored}, which was in memory"
    took = f" {repair.seconds:.1f} s later" if repair.seconds is not None else ""
    gang = f"The gang was repaired in place as generation {repair.generation}{_stood_in(repair.spares)} and"
    if repair.step == 0:  # a command has no steps
        return f"{gang} started its command again{took}."
    return f"{gang} trained again{took}, from {source}."


def _stood_in(ranks: Sequence[int]) -> str:
    if not ranks:
        return ""
    return f", with a spare as rank {ranks[0]}," if len(ranks) == 1 else f", with spares as ranks {ranks},"
