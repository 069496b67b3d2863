"""The calls of `AsyncClient` about jobs that are one request each."""

from collections.abc import Mapping, Sequence
from typing import Literal

from ....service.schemas.checkpoint import Checkpoints
from ....service.schemas.curve import Curves
from ....service.schemas.fault import Fault
from ....service.schemas.history import HistoryPage
from ....service.schemas.incident import Incidents
from ....service.schemas.job import Jobs
from ....service.schemas.log import Logs, LogSearchResult
from ....service.schemas.operation import Operation, Operations
from ....service.schemas.preview import Preview
from ....service.schemas.rank import RankMetricsPage
from ....service.schemas.resource import ResourceReport
from ....service.schemas.sparkline import LossSparkline
from ....service.schemas.step import Metrics
from ....service.schemas.timeline import Plan, Timeline
from ....service.schemas.trace import Trace, Traces, TraceSpans, TraceSummary
from .. import requests
from .service_questions import AsyncServiceQuestions


class AsyncQuestions(AsyncServiceQuestions):
    """Methods of one request each."""

    # Jobs

    async def preview(self, spec: requests.Spec) -> Preview:
        """Check a spec as `submit` would, and return the layout and batch it resolves to. Stores nothing. Raises `ApiError` as `submit`."""
        return await self._ask(requests.preview(requests.document(spec)))

    async def jobs(
        self,
        *,
        state: str | None = None,
        label: Mapping[str, str] | None = None,
        name: str | None = None,
        text: str | None = None,
        sort: Literal["newest", "oldest", "name"] = "newest",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Jobs:
        """One page of jobs, newest first, or sorted otherwise."""
        wanted = {"state": state, "label": label, "name": name, "text": text, "sort": sort}
        return await self._ask(requests.jobs(**wanted, limit=limit, cursor=cursor))

    async def sparklines(self, jobs: Sequence[str]) -> list[LossSparkline]:
        """The training loss of many jobs (ids, at most 200), each in at most 64 buckets; those without a step are left out."""
        return await self._ask(requests.sparklines(jobs))

    async def inject_fault(
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

        Raises `ApiError` `faults_disabled` if the server does not allow it. Repeating a call with the same key injects once.
        """
        return await self._ask(
            requests.inject_fault(job, idempotency_key, kind=kind, rank=rank, delay_ms=delay_ms, duration_s=duration_s)
        )

    # Events, logs and metrics of a job

    async def metrics(self, job: str, *, since: int = 0, max_points: int = 1000) -> Metrics:
        """Step records after step `since`, thinned to about `max_points`."""
        return await self._ask(requests.metrics(job, since, max_points))

    async def curves(
        self,
        job: str,
        names: str | Sequence[str] = "loss",
        *,
        from_step: int = 1,
        to_step: int | None = None,
        buckets: int = 400,
    ) -> Curves:
        """Metrics over a range of steps (None: to the newest) in at most `buckets` (up to 800) buckets, each with its extremes."""
        return await self._ask(requests.curves(job, names, from_step=from_step, to_step=to_step, buckets=buckets))

    async def incidents(
        self, job: str, *, after: int = 0, newest: bool = False, before: int | None = None, limit: int = 100
    ) -> Incidents:
        """Incidents and their repairs after position `after`; or, if `newest`, newest first, before position `before`."""
        return await self._ask(requests.incidents(job, after=after, newest=newest, before=before, limit=limit))

    async def timeline(self, job: str) -> Timeline:
        """The job's states over time, with its incidents, repairs and changes of layout."""
        return await self._ask(requests.timeline(job))

    async def history_page(self, job: str, *, before: int | None = None, limit: int = 100) -> HistoryPage:
        """The job's events before position `before`, newest first: states, checkpoints, incidents, repairs, layouts, faults."""
        return await self._ask(requests.history(job, before, limit))

    async def plan(self, job: str) -> Plan:
        """The plan that the job's gang reported before its first step: sizes of model, step and corpus."""
        return await self._ask(requests.plan(job))

    async def checkpoints(self, job: str, *, before: int | None = None, limit: int = 100) -> Checkpoints:
        """Complete checkpoints that the job reported before position `before`, newest first."""
        return await self._ask(requests.checkpoints(job, before, limit))

    async def verify_checkpoint(self, job: str, position: int, *, idempotency_key: str | None = None) -> Operation:
        """Compare the files of a job's checkpoint (its `position`) with their checksums, on the cluster. `finished` waits for the result.

        Repeating a call with the same key starts one operation.
        """
        return await self._ask(requests.verify_checkpoint(job, position, idempotency_key))

    async def export_checkpoint(
        self, job: str, position: int, *, dtype: str = "fp32", idempotency_key: str | None = None
    ) -> Operation:
        """Export a job's checkpoint (its `position`) as a Hugging Face folder beside it, on the cluster. `finished` waits for the result.

        Repeating a call with the same key starts one operation.
        """
        return await self._ask(requests.export_checkpoint(job, position, dtype, idempotency_key))

    async def operation(self, job: str, operation: str) -> Operation:
        """The state of a verification or an export."""
        return await self._ask(requests.operation(job, operation))

    async def operations(self, job: str, *, before: str | None = None, limit: int = 20) -> Operations:
        """Verifications and exports that were requested before the operation `before`, newest first."""
        return await self._ask(requests.operations(job, before, limit))

    async def logs(
        self,
        job: str,
        *,
        rank: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        around: int | None = None,
    ) -> Logs:
        """Log lines after position `after`; or the last `tail`; or those around position `around`, half of `limit` before it."""
        return await self._ask(requests.logs(job, rank=rank, after=after, limit=limit, tail=tail, around=around))

    async def search_logs(
        self,
        job: str,
        text: str = "",
        *,
        rank: int | None = None,
        level: requests.Level | None = None,
        since: float | None = None,
        until: float | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> LogSearchResult:
        """Lines with `text`, of `level` or above, between two times (unix seconds), among the 20,000 after position `after`."""
        wanted = {"text": text, "rank": rank, "level": level, "since": since, "until": until}
        return await self._ask(requests.search_logs(job, **wanted, after=after, limit=limit))

    async def ranks(self, job: str, *, before: int | None = None, limit: int = 100) -> RankMetricsPage:
        """Samples of the ranks before position `before`, newest first; as many as fit into 300 kB."""
        return await self._ask(requests.ranks(job, before, limit))

    async def resources(self, job: str) -> ResourceReport:
        """Memory and traffic of the job's ranks, by formula and as the newest probe measured them."""
        return await self._ask(requests.resources(job))

    # Traces

    async def trace(self, job: str, *, steps: int = 3, idempotency_key: str | None = None) -> Trace:
        """Trace every rank of a running job during its next steps. The event `trace_finished` reports the end.

        Repeating a call with the same key starts one trace. Raises `ApiError` `job_not_running`, `trace_open`.
        """
        return await self._ask(requests.trace(job, steps, idempotency_key))

    async def traces(self, job: str, *, before: str | None = None, limit: int = 20) -> Traces:
        """Traces that were requested before the trace `before`, newest first."""
        return await self._ask(requests.traces(job, before, limit))

    async def trace_summary(self, job: str, trace: str, *, step: int | None = None) -> TraceSummary:
        """Each rank's time by category: means over the traced steps, or of one step."""
        return await self._ask(requests.trace_summary(job, trace, step))

    async def trace_spans(
        self,
        job: str,
        trace: str,
        *,
        step: int | None = None,
        ranks: Sequence[int] | None = None,
        from_us: int = 0,
        to_us: int | None = None,
    ) -> TraceSpans:
        """The longest spans of a traced step (None: the first) within a window, as many as fit."""
        return await self._ask(requests.trace_spans(job, trace, step=step, ranks=ranks, from_us=from_us, to_us=to_us))

    async def perfetto(self, job: str, trace: str) -> bytes:
        """A whole trace as a Perfetto file: Chrome trace JSON, gzipped."""
        return await self._ask(requests.perfetto(job, trace))
