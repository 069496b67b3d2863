"""Decides whether a job whose attempt was lost is retried, from which budget, and when. `service/dispatch/retry.py` carries the
decisions out.

Machine faults and exceptions of the training code have separate budgets; a fault of the whole cluster uses none. Every new try
waits twice as long as the one before, until an attempt makes progress again.
"""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

#: Reasons for `failed` that are the machines' fault and not the training code's, reported by the gang or found without it.
INFRASTRUCTURE: Final = frozenset(
    {
        "rank_lost",
        "node_lost",
        "gang_lost",
        "hang",
        "replica_mismatch",
        "connection_lost",
        "start_failed",
        "other_version",
        "gang_error",
        "journal_unreadable",
        "storage_unreachable",
        "secrets_key_unusable",
        "package_index_unreachable",
        "files_unreachable",
        "files_no_room",
        "cache_disk_full",
        "cache_disk_failed",
        "not_prepared",
        "state_disk_full",
        "state_disk_failed",
        "device_failed",
        "placement_timeout",
        "cluster_lost",
        "cluster_unreachable",
    }
)

#: Those of them that count against no node. A server elsewhere has caused them, such as the storage or what the spec names, or the job's
#: own packages may have: by what they take to build. So one job, or an outage, would cordon the cluster.
OF_NO_NODE: Final = frozenset({"storage_unreachable", "package_index_unreachable", "files_unreachable", "not_prepared"})

#: Those of them that are faults of the whole cluster: they use no budget. `other_version`: while nodes are upgraded, jobs wait.
FREE: Final = frozenset({"cluster_lost", "cluster_unreachable", "placement_timeout", "other_version"})

#: The version of Shardyard that stored the job's spec had other rules.
SPEC_UNREADABLE: Final = "spec_unreadable"

#: The checkpoint from which the job was to begin was removed or damaged while it waited.
SOURCE_GONE: Final = frozenset({"checkpoint_deleted", "checkpoint_corrupt"})

#: A secret that the job names was removed.
SECRET_UNAVAILABLE: Final = "secret_unavailable"  # noqa: S105  # a code

#: A new attempt would end in the same way.
FINAL: Final = frozenset(
    {"environment_not_built", "files_not_fetched", SPEC_UNREADABLE, SECRET_UNAVAILABLE, *SOURCE_GONE}
)

#: Attempts that ended on request: they use no budget, and the next one need not wait.
RESHARD: Final = "reshard"
PAUSE: Final = "pause"

#: An elastic gang ended because it had lost devices for longer than its grace period. It uses no budget, and the job continues with the
#: devices that are left.
DEVICES_LOST: Final = "devices_lost"

#: For these reasons the training code is not to blame, even if it raised exceptions.
MACHINES: Final = INFRASTRUCTURE | {DEVICES_LOST}

#: An attempt with at least this number of new steps has made progress: the next try waits no longer than the first one.
PROGRESS_STEPS: Final = 10


@dataclass(frozen=True)
class Backoff:
    """Seconds before a new try: `first_s`, doubled with each setback up to `max_s`."""

    first_s: float = 5.0
    max_s: float = 300.0

    def wait_s(self, job_id: str, setbacks: int) -> float:
        """Seconds to wait for the try after `setbacks` setbacks in a row (1, 2, …).

        Half to all of it, depending on the job: jobs that were lost together do not come back together.
        """
        share = 0.5 + crc32(f"{job_id} {setbacks}".encode()) / 2**33
        return share * min(self.max_s, self.first_s * 2.0 ** min(setbacks - 1, 60))


@dataclass(frozen=True)
class Spent:
    """What a job has used of its budgets; `setbacks` are its attempts in a row that were lost without progress."""

    restarts: int
    max_restarts: int
    retries: int
    max_retries: int
    setbacks: int


@dataclass(frozen=True)
class Fault:
    """Why an attempt was lost, and its number of new steps. `earlier`: an earlier attempt that ended with the same exception."""

    reason: str
    new_steps: int
    earlier: int | None = None


@dataclass(frozen=True)
class Again:
    """Retry the job in `wait_s` seconds; `spent` is what is used then, `note` is for people."""

    wait_s: float
    spent: Spent
    note: str


@dataclass(frozen=True)
class Enough:
    """The job has failed; `note` is the reason why it is not retried, if a budget might have allowed it."""

    reason: str
    note: str | None = None


def decide(job_id: str, spent: Spent, fault: Fault, backoff: Backoff) -> Again | Enough:
    """Decide whether a job that lost its attempt is retried."""
    if fault.reason in (RESHARD, PAUSE, DEVICES_LOST):
        return Again(0.0, spent, "")
    enough = _enough(spent, fault)
    if enough is not None:
        return enough
    setbacks = 1 if fault.new_steps >= PROGRESS_STEPS else spent.setbacks + 1
    wait_s = backoff.wait_s(job_id, setbacks)
    restarts = spent.restarts + (fault.reason in INFRASTRUCTURE - FREE)
    retries = spent.retries + (fault.reason not in INFRASTRUCTURE)
    after = Spent(restarts, spent.max_restarts, retries, spent.max_retries, setbacks)
    return Again(wait_s, after, f"{_which(fault.reason, after)} in {wait_s:.1f} s")


def _enough(spent: Spent, fault: Fault) -> Enough | None:
    if fault.reason in FREE:
        return None
    if fault.reason in FINAL:
        return Enough(fault.reason)
    if fault.reason in INFRASTRUCTURE:
        return _used_up(fault.reason, "restarts", spent.restarts, spent.max_restarts)
    if fault.earlier is not None and spent.max_retries:
        note = f"the same exception at the same step ended attempt {fault.earlier}: a new try would end the same way"
        return Enough("exception_repeated", note)
    return _used_up(fault.reason, "retries", spent.retries, spent.max_retries)


def _used_up(reason: str, sort: str, used: int, most: int) -> Enough | None:
    if used < most:
        return None
    return Enough(reason, f"{used} of {most} {sort} are used up (policy.max_{sort})" if most else None)


def _which(reason: str, after: Spent) -> str:
    if reason in FREE:
        return "new try"
    if reason in INFRASTRUCTURE:
        return f"restart {after.restarts} of {after.max_restarts}"
    return f"retry {after.retries} of {after.max_retries}"
