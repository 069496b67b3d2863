# Generated from api/client/_async/job.py; change that file, then run: make sync-client
"""A job with the client that read it: `JobHandle` is a `Job` whose methods call that client.

A notebook renders it with its loss curve.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr

from ....service.schemas.artifact import LoggedArtifacts
from ....service.schemas.checkpoint import Checkpoints
from ....service.schemas.curve import Curves
from ....service.schemas.history import HistoryPage
from ....service.schemas.incident import Incidents
from ....service.schemas.job import Job
from ....service.schemas.log import Logs, LogSearchResult
from ....service.schemas.operation import Operation, Operations
from ....service.schemas.rank import RankMetricsPage
from ....service.schemas.resource import ResourceReport
from ....service.schemas.step import Metrics
from ....service.schemas.timeline import Plan, Timeline
from ....service.schemas.trace import Trace, Traces, TraceSummary
from ....strategies.layout import Layout
from .. import notebook
from ..requests import Level, Stream
from ..transport import ApiError, Event
from . import runtime

if TYPE_CHECKING:
    from .client import Client


class JobActions(Job):
    """A job, and what can be done with it."""

    _client: "Client" = PrivateAttr()

    def edit(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        notes: str | None = None,
        pinned: bool | None = None,
    ) -> "JobHandle":
        """Change its name, labels or notes, or pin it. `labels` replace all of them; what is None stays."""
        return self._client.edit(self.id, name=name, labels=labels, notes=notes, pinned=pinned)

    def cancel(self) -> "JobHandle":
        """Cancel the job."""
        return self._client.cancel(self.id)

    def pause(self) -> "JobHandle":
        """Pause the job."""
        return self._client.pause(self.id)

    def resume(self) -> "JobHandle":
        """Queue the job again, if it is paused."""
        return self._client.resume(self.id)

    def retry(self) -> "JobHandle":
        """Submit the job again, if it failed or was cancelled. Returns the new job."""
        return self._client.retry(self.id)

    def clone(self, *, set: Mapping[str, Any] | None = None, name: str | None = None) -> "JobHandle":
        """Submit a copy of its spec as a new job, with other values by the path of their key. Returns the new job."""
        return self._client.clone(self.id, set=set, name=name)

    def delete(self) -> "JobHandle":
        """Delete the job, if it has ended."""
        return self._client.delete(self.id)

    def undelete(self) -> "JobHandle":
        """Restore the job, if it was deleted."""
        return self._client.undelete(self.id)

    def reshard(self, layout: Layout | Mapping[str, Any]) -> "JobHandle":
        """Continue the job with another layout."""
        return self._client.reshard(self.id, layout)

    def artifacts(
        self, *, prefix: str = "", kind: str | None = None, after: str | None = None, limit: int = 100
    ) -> LoggedArtifacts:
        """Files that its program logged."""
        return self._client.artifacts(self.id, prefix=prefix, kind=kind, after=after, limit=limit)

    def download_artifact(self, name: str, to: str | Path, *, step: int | None = None) -> Path:
        """Download a file that its program logged."""
        return self._client.download_artifact(self.id, name, to, step=step)

    def download_checkpoint(self, step: int, to: str | Path) -> list[Path]:
        """Download the files of its checkpoint of a step into a folder, and continue what broke off. Returns their paths."""
        return self._client.download_checkpoint(self.id, step, to)


class JobHandle(JobActions):
    """A job as `Client` returns it."""

    _metrics: Metrics | None = PrivateAttr(None)

    @staticmethod
    def of(job: Job, client: "Client") -> "JobHandle":
        handle = JobHandle.model_construct(**dict(job))
        handle._client = client
        return handle

    def refresh(self) -> "JobHandle":
        """The job, read again."""
        return self._client.job(self.id)

    def wait(self, timeout_s: float | None = None) -> "JobHandle":
        """The job once it has ended. Raises `WaitTimeout` when that takes longer than `timeout_s`."""
        return self._client.wait(self.id, timeout_s)

    def events(
        self, after: str | None = None, *, logs: bool = False, rank: int | None = None, ranks: bool = False
    ) -> Generator[Event]:
        """Its events, as they happen, to its end."""
        return self._client.events(self.id, after, logs=logs, rank=rank, ranks=ranks)

    def metrics(self, *, since: int = 0, max_points: int = 1000) -> Metrics:
        """Its step records."""
        return self._client.metrics(self.id, since=since, max_points=max_points)

    def curves(
        self,
        names: str | Sequence[str] = "loss",
        *,
        from_step: int = 1,
        to_step: int | None = None,
        buckets: int = 400,
    ) -> Curves:
        """Its metrics over a range of steps, in buckets with their extremes."""
        return self._client.curves(self.id, names, from_step=from_step, to_step=to_step, buckets=buckets)

    def incidents(
        self, *, after: int = 0, newest: bool = False, before: int | None = None, limit: int = 100
    ) -> Incidents:
        """Its incidents and their repairs."""
        return self._client.incidents(self.id, after=after, newest=newest, before=before, limit=limit)

    def timeline(self) -> Timeline:
        """Its states over time."""
        return self._client.timeline(self.id)

    def history_page(self, *, before: int | None = None, limit: int = 100) -> HistoryPage:
        """Its events, newest first."""
        return self._client.history_page(self.id, before=before, limit=limit)

    def plan(self) -> Plan:
        """Sizes of its model, step and corpus."""
        return self._client.plan(self.id)

    def checkpoints(self, *, before: int | None = None, limit: int = 100) -> Checkpoints:
        """Its checkpoints, newest first."""
        return self._client.checkpoints(self.id, before=before, limit=limit)

    def verify_checkpoint(self, position: int) -> Operation:
        """Verify a checkpoint (its `position`) on the cluster."""
        return self._client.verify_checkpoint(self.id, position)

    def export_checkpoint(self, position: int, *, dtype: str = "fp32") -> Operation:
        """Export a checkpoint (its `position`) on the cluster as a Hugging Face folder beside it."""
        return self._client.export_checkpoint(self.id, position, dtype=dtype)

    def operations(self, *, before: str | None = None, limit: int = 20) -> Operations:
        """Its verifications and exports, newest first."""
        return self._client.operations(self.id, before=before, limit=limit)

    def trace(self, *, steps: int = 3) -> Trace:
        """Trace its ranks during the next steps."""
        return self._client.trace(self.id, steps=steps)

    def traces(self, *, before: str | None = None, limit: int = 20) -> Traces:
        """Its traces, newest first."""
        return self._client.traces(self.id, before=before, limit=limit)

    def trace_summary(self, trace: str, *, step: int | None = None) -> TraceSummary:
        """Each rank's time by category."""
        return self._client.trace_summary(self.id, trace, step=step)

    def ranks(self, *, before: int | None = None, limit: int = 100) -> RankMetricsPage:
        """Samples of its ranks, newest first."""
        return self._client.ranks(self.id, before=before, limit=limit)

    def resources(self) -> ResourceReport:
        """Memory and traffic of its ranks, by formula and measured."""
        return self._client.resources(self.id)

    def logs(
        self,
        *,
        rank: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        around: int | None = None,
    ) -> Logs:
        """Its log lines."""
        return self._client.logs(self.id, rank=rank, after=after, limit=limit, tail=tail, around=around)

    def search_logs(  # noqa: PLR0913 - a condition each
        self,
        text: str = "",
        *,
        rank: int | None = None,
        level: Level | None = None,
        since: float | None = None,
        until: float | None = None,
        stream: Stream | None = None,
        regex: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> LogSearchResult:
        """The matching lines among the next 20,000 of its log."""
        ask = partial(self._client.search_logs, self.id, text, rank=rank, level=level, stream=stream, regex=regex)
        return ask(since=since, until=until, after=after, limit=limit)

    def watch(self, every_s: float = 1.0, display: notebook.Display | None = None) -> "JobHandle":
        """Show the job in a notebook until it ends, redrawn at most every `every_s` seconds. Returns the ended job."""
        shown = (display or notebook.ipython_display)(self._drawn())
        due = notebook.Due(every_s)
        for _ in self.events(self.cursor):
            if due():
                now = self._client.retry_unreachable(self.refresh)
                shown.update(now._drawn())
        ended = self._client.retry_unreachable(self.refresh)
        shown.update(ended._drawn())
        return ended

    def _drawn(self) -> Self:
        """The job's HTML with its loss curve."""
        self._metrics = self._read_curve()
        return self

    def _read_curve(self) -> Metrics | None:
        try:
            return self.metrics(max_points=notebook.POINTS)
        # A closed client raises RuntimeError. A notebook that is opened later shows what was last read.
        except (ApiError, RuntimeError):
            return None

    def _repr_html_(self) -> str:
        return notebook.html(self, self._metrics or runtime.at_once(self._read_curve))
