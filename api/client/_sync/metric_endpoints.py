# Generated from api/client/_async/metric_endpoints.py; change that file, then run: make sync-client
"""The calls of `Client` about a job's metrics, ranks and traces that are one request each."""

from collections.abc import Sequence

from ....service import ids
from ....service.schemas.artifact import LoggedArtifacts
from ....service.schemas.curve import Curves
from ....service.schemas.logged_metric import JobLoggedValues, LoggedCurves, LoggedMetrics, LoggedNames
from ....service.schemas.profile import Profile, Profiles
from ....service.schemas.rank import RankMetricsPage
from ....service.schemas.resource import ResourceReport
from ....service.schemas.sparkline import LossSparkline
from ....service.schemas.step import Metrics
from ....service.schemas.system import SystemCurves
from ....service.schemas.trace import Trace, Traces, TraceSpans, TraceSummary
from ....workers.messages.profile_request import Kind
from .. import logged_requests, requests
from .service_endpoints import ServiceEndpoints


class MetricEndpoints(ServiceEndpoints):
    """Methods of one request each."""

    def _id_of(self, job: str, key: str | None) -> str:
        """The id of the job that gets an order without a `key` of the caller's: a repeated request must not mean another job of its name.

        Returns `job` as it is with a key, which the service takes with an id only.
        """
        return job if key or ids.parse("job", job) else (self._send(requests.job(job))).id

    # Metrics

    def metrics(self, job: str, *, since: int = 0, max_points: int = 1000) -> Metrics:
        """Step records after step `since`, thinned to about `max_points`."""
        return self._send(requests.metrics(job, since, max_points))

    def curves(
        self,
        job: str,
        names: str | Sequence[str] = "loss",
        *,
        from_step: int = 1,
        to_step: int | None = None,
        buckets: int = 400,
    ) -> Curves:
        """Metrics over a range of steps (None: to the newest) in at most `buckets` (up to 800) buckets, each with its extremes."""
        return self._send(requests.curves(job, names, from_step=from_step, to_step=to_step, buckets=buckets))

    def logged_metrics(
        self, job: str, *, text: str | None = None, after: str | None = None, limit: int = 100
    ) -> LoggedMetrics:
        """Metrics that the job's program logged, in order of their names after `after`; only those whose name contains `text`."""
        return self._send(logged_requests.logged_metrics(job, text=text, after=after, limit=limit))

    def logged_curves(
        self,
        job: str,
        names: str | Sequence[str],
        *,
        from_step: int = 0,
        to_step: int | None = None,
        buckets: int = 400,
    ) -> LoggedCurves:
        """Logged metrics over a range of steps (None: to the newest) in at most `buckets` (up to 800) buckets of each."""
        return self._send(
            logged_requests.logged_curves(job, names, from_step=from_step, to_step=to_step, buckets=buckets)
        )

    def logged_names(self, jobs: Sequence[str], *, text: str | None = None, limit: int = 200) -> LoggedNames:
        """Names of the metrics that any of these jobs (ids, at most 200) logged, those of the most jobs first."""
        return self._send(logged_requests.logged_names(jobs, text=text, limit=limit))

    def logged_values(self, jobs: Sequence[str], names: str | Sequence[str]) -> list[JobLoggedValues]:
        """The newest values of logged metrics (at most 16 names) of many jobs (ids, at most 200), without those that have none."""
        return self._send(logged_requests.logged_values(jobs, names))

    def system(
        self,
        job: str,
        name: str = "rank/cpu",
        *,
        since: float | None = None,
        until: float | None = None,
        after: str | None = None,
    ) -> SystemCurves:
        """What the job's nodes (`node/cpu`, `node/memory_used`, …) or ranks (`rank/cpu`, `rank/gpu_power`, …) use over time.

        From `since` to `until` (unix seconds; None: from the first, to the newest sample), of 24 nodes or ranks after `after`.
        """
        return self._send(requests.system(job, name, since=since, until=until, after=after))

    def sparklines(self, jobs: Sequence[str]) -> list[LossSparkline]:
        """The training loss of many jobs (ids, at most 200), each in at most 64 buckets; those without a step are left out."""
        return self._send(requests.sparklines(jobs))

    # Files

    def artifacts(
        self,
        job: str,
        *,
        prefix: str = "",
        kind: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> LoggedArtifacts:
        """Files that the job's program logged, in order of name and step after `after`; `kind`: only `file`, `image` or `table`."""
        return self._send(requests.artifacts(job, prefix=prefix or None, kind=kind, after=after, limit=limit))

    # Ranks

    def ranks(self, job: str, *, before: int | None = None, limit: int = 100) -> RankMetricsPage:
        """Samples of the ranks before position `before`, newest first; as many as fit into 300 kB.

        A position needs the job's id, not its name.
        """
        return self._send(requests.ranks(job, before, limit))

    def resources(self, job: str) -> ResourceReport:
        """Memory and traffic of the job's ranks, by formula and as the newest probe measured them."""
        return self._send(requests.resources(job))

    # Profiles

    def profile(
        self,
        job: str,
        *,
        rank: int,
        kind: Kind = "stacks",
        seconds: int = 10,
        idempotency_key: str | None = None,
    ) -> Profile:
        """Profile a rank of a running job. The event `profile` reports the end, and `profiles` names the file.

        Repeating a call with the same key, and the job's id, takes one profile. Raises `ApiError` `job_not_running`,
        `profile_not_possible`, `too_many_profiles`.
        """
        job_id = self._id_of(job, idempotency_key)
        return self._send(requests.profile(job_id, idempotency_key, rank=rank, kind=kind, seconds=seconds))

    def profiles(self, job: str, *, before: str | None = None, limit: int = 20) -> Profiles:
        """Profiles that were requested before the profile `before`, newest first. `file` is for `download_artifact`."""
        return self._send(requests.profiles(job, before, limit))

    # Traces

    def trace(self, job: str, *, steps: int = 3, idempotency_key: str | None = None) -> Trace:
        """Trace every rank of a running job during its next steps. The event `trace_finished` reports the end.

        Repeating a call with the same key, and the job's id, starts one trace. Raises `ApiError` `job_not_running`,
        `trace_not_possible` (of a program), `trace_open`.
        """
        return self._send(requests.trace(self._id_of(job, idempotency_key), steps, idempotency_key))

    def traces(self, job: str, *, before: str | None = None, limit: int = 20) -> Traces:
        """Traces that were requested before the trace `before`, newest first."""
        return self._send(requests.traces(job, before, limit))

    def trace_summary(self, job: str, trace: str, *, step: int | None = None) -> TraceSummary:
        """Each rank's time by category: means over the traced steps, or of one step."""
        return self._send(requests.trace_summary(job, trace, step))

    def trace_spans(
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
        return self._send(requests.trace_spans(job, trace, step=step, ranks=ranks, from_us=from_us, to_us=to_us))

    def perfetto(self, job: str, trace: str) -> bytes:
        """A whole trace as a Perfetto file: Chrome trace JSON, gzipped."""
        return self._send(requests.perfetto(job, trace))
