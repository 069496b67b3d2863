# Generated from api/client/_async/endpoints.py; change that file, then run: make sync-client
"""The calls of `Client` about jobs that are one request each."""

from collections.abc import Mapping, Sequence

from ....service.schemas.certificate import Certificate
from ....service.schemas.checkpoint import Checkpoints
from ....service.schemas.exec import Exec, Execs
from ....service.schemas.fault import Fault
from ....service.schemas.history import HistoryPage
from ....service.schemas.incident import Incidents
from ....service.schemas.job import Jobs
from ....service.schemas.log import Logs, LogSearchResult
from ....service.schemas.operation import Operation, Operations
from ....service.schemas.submitted_spec import SubmittedSpec
from ....service.schemas.timeline import Plan, Timeline
from .. import certificate_requests, requests
from .metric_endpoints import MetricEndpoints


class Endpoints(MetricEndpoints):
    """Methods of one request each."""

    # Jobs

    def jobs(
        self,
        *,
        state: str | None = None,
        label: Mapping[str, str] | None = None,
        name: str | None = None,
        text: str | None = None,
        deleted: bool = False,
        sort: str = "newest",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Jobs:
        """One page of jobs. `deleted`: the deleted jobs alone, which can be restored.

        `sort`: `newest`, `oldest`, `name`, `state`, `duration`, `device_time`, or for a logged metric `metric.NAME`, `lowest.NAME` or
        `highest.NAME`; with `-` before it the largest first, as in `-highest.acc`. Durations and device times are as of the first page.
        """
        wanted = {"state": state, "label": label, "name": name, "text": text, "sort": sort}
        return self._send(requests.jobs(**wanted, deleted=deleted or None, limit=limit, cursor=cursor))

    def inject_fault(
        self,
        job: str,
        kind: str,
        *,
        rank: int | None = None,
        delay_ms: float | None = None,
        duration_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> Fault:
        """Inject a fault, such as `kill-rank`, into a running job. The event `fault` reports the injection.

        Raises `ApiError` `faults_disabled` if the server does not allow it. Repeating a call with the same key, and the
        job's id, injects once.
        """
        job_id, wanted = self._id_of(job, idempotency_key), {"delay_ms": delay_ms, "duration_s": duration_s}
        return self._send(requests.inject_fault(job_id, idempotency_key, kind=kind, rank=rank, **wanted))

    def execute(
        self,
        job: str,
        command: Sequence[str],
        *,
        rank: int,
        seconds: int = 60,
        idempotency_key: str | None = None,
    ) -> Exec:
        """Run a command beside a rank of a running job. Its output is the stream `exec` of the rank's log; the event `exec` ends it.

        Raises `ApiError` `exec_disabled` if the server does not allow it, and `exec_open`. Repeating a call with the same key, and the
        job's id, runs it once.
        """
        job_id = self._id_of(job, idempotency_key)
        return self._send(requests.execute(job_id, idempotency_key, command, rank=rank, seconds=seconds))

    def execs(self, job: str, *, before: str | None = None, limit: int = 20) -> Execs:
        """Commands beside ranks that were requested before the command `before`, newest first."""
        return self._send(requests.execs(job, before, limit))

    # Events and logs of a job

    def incidents(
        self, job: str, *, after: int = 0, newest: bool = False, before: int | None = None, limit: int = 100
    ) -> Incidents:
        """Incidents and their repairs after position `after`; or, if `newest`, newest first, before position `before`.

        A position needs the job's id, not its name.
        """
        return self._send(requests.incidents(job, after=after, newest=newest, before=before, limit=limit))

    def timeline(self, job: str) -> Timeline:
        """The job's states over time, with its incidents, repairs and changes of layout."""
        return self._send(requests.timeline(job))

    def history_page(self, job: str, *, before: int | None = None, limit: int = 100) -> HistoryPage:
        """The job's events before position `before`, newest first: states, checkpoints, incidents, repairs, layouts, faults.

        A position needs the job's id, not its name.
        """
        return self._send(requests.history(job, before, limit))

    def submitted_spec(self, job: str) -> SubmittedSpec:
        """The text that the job was submitted with, with its comments."""
        return self._send(requests.submitted_spec(job))

    def certificate(self, job: str) -> Certificate:
        """What `shardyard verify --job` found of the job's spec. Raises `ApiError` `certificate_not_found`."""
        return self._send(certificate_requests.of_job(job))

    def plan(self, job: str) -> Plan:
        """The plan that the job's gang reported before its first step: sizes of model, step and corpus."""
        return self._send(requests.plan(job))

    def checkpoints(self, job: str, *, before: int | None = None, limit: int = 100) -> Checkpoints:
        """Complete checkpoints that the job reported before position `before`, newest first.

        A position needs the job's id, not its name.
        """
        return self._send(requests.checkpoints(job, before, limit))

    def verify_checkpoint(self, job: str, position: int, *, idempotency_key: str | None = None) -> Operation:
        """Compare the files of a job's checkpoint (its `position`) with their checksums, on the cluster. `finished` waits for the result.

        `job` is its id, not its name. Repeating a call with the same key starts one operation.
        """
        return self._send(requests.verify_checkpoint(job, position, idempotency_key))

    def pin_checkpoint(self, job: str, position: int, *, idempotency_key: str | None = None) -> Operation:
        """Keep a job's checkpoint (its `position`), whatever it saves later. `finished` waits until the cluster has pinned it.

        `job` is its id, not its name. Repeating a call with the same key starts one operation.
        """
        return self._send(requests.pin_checkpoint(job, position, idempotency_key, pinned=True))

    def unpin_checkpoint(self, job: str, position: int, *, idempotency_key: str | None = None) -> Operation:
        """Let later saves remove a job's checkpoint (its `position`). Raises `ApiError` `checkpoint_in_models`.

        `job` is its id, not its name. Repeating a call with the same key starts one operation.
        """
        return self._send(requests.pin_checkpoint(job, position, idempotency_key, pinned=False))

    def export_checkpoint(
        self, job: str, position: int, *, dtype: str = "fp32", idempotency_key: str | None = None
    ) -> Operation:
        """Export a job's checkpoint (its `position`) as a Hugging Face folder beside it, on the cluster. `finished` waits for the result.

        `job` is its id, not its name. Repeating a call with the same key starts one operation.
        """
        return self._send(requests.export_checkpoint(job, position, dtype, idempotency_key))

    def operation(self, job: str, operation: str) -> Operation:
        """The state of a verification or an export."""
        return self._send(requests.operation(job, operation))

    def operations(self, job: str, *, before: str | None = None, limit: int = 20) -> Operations:
        """Verifications and exports that were requested before the operation `before`, newest first."""
        return self._send(requests.operations(job, before, limit))

    def logs(
        self,
        job: str,
        *,
        rank: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        around: int | None = None,
    ) -> Logs:
        """Log lines after position `after`; or the last `tail`; or those around position `around`, half of `limit` before it.

        An answer ends at 4 MiB of text: go on with `after=next`. Of `tail` the newest lines are in it.
        A position needs the job's id, not its name.
        """
        return self._send(requests.logs(job, rank=rank, after=after, limit=limit, tail=tail, around=around))

    def search_logs(  # noqa: PLR0913 - a condition each
        self,
        job: str,
        text: str = "",
        *,
        rank: int | None = None,
        level: requests.Level | None = None,
        since: float | None = None,
        until: float | None = None,
        stream: requests.Stream | None = None,
        regex: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> LogSearchResult:
        """Lines with `text`, of `level` or above, between two times (unix seconds), among the 20,000 after position `after`.

        With `regex`, `text` is a regular expression in RE2's syntax. A position needs the job's id, not its name.
        """
        wanted = {"text": text, "rank": rank, "level": level, "since": since, "until": until, "stream": stream}
        wanted["regex"] = regex or None
        return self._send(requests.search_logs(job, **wanted, after=after, limit=limit))
