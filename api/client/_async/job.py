"""A job with the client that read it: `AsyncJobHandle` is a `Job` whose methods call that client.

A notebook renders it with its loss curve.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
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
    from .client import AsyncClient


class AsyncJobActions(Job):
    """A job, and what can be done with it."""

    _client: "AsyncClient" = PrivateAttr()

    async def edit(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        notes: str | None = None,
        pinned: bool | None = None,
    ) -> "AsyncJobHandle":
        """Change its name, labels or notes, or pin it. `labels` replace all of them; what is None stays."""
        return await self._client.edit(self.id, name=name, labels=labels, notes=notes, pinned=pinned)

    async def cancel(self) -> "AsyncJobHandle":
        """Cancel the job."""
        return await self._client.cancel(self.id)

    async def pause(self) -> "AsyncJobHandle":
        """Pause the job."""
        return await self._client.pause(self.id)

    async def resume(self) -> "AsyncJobHandle":
        """Queue the job again, if it is paused."""
        return await self._client.resume(self.id)

    async def retry(self) -> "AsyncJobHandle":
        """Submit the job again, if it failed or was cancelled. Returns the new job."""
        return await self._client.retry(self.id)

    async def clone(self, *, set: Mapping[str, Any] | None = None, name: str | None = None) -> "AsyncJobHandle":
        """Submit a copy of its spec as a new job, with other values by the path of their key. Returns the new job."""
        return await self._client.clone(self.id, set=set, name=name)

    async def delete(self) -> "AsyncJobHandle":
        """Delete the job, if it has ended."""
        return await self._client.delete(self.id)

    async def undelete(self) -> "AsyncJobHandle":
        """Restore the job, if it was deleted."""
        return await self._client.undelete(self.id)

    async def reshard(self, layout: Layout | Mapping[str, Any]) -> "AsyncJobHandle":
        """Continue the job with another layout."""
        return await self._client.reshard(self.id, layout)

    async def artifacts(
        self, *, prefix: str = "", kind: str | None = None, after: str | None = None, limit: int = 100
    ) -> LoggedArtifacts:
        """Files that its program logged."""
        return await self._client.artifacts(self.id, prefix=prefix, kind=kind, after=after, limit=limit)

    async def download_artifact(self, name: str, to: str | Path, *, step: int | None = None) -> Path:
        """Download a file that its program logged."""
        return await self._client.download_artifact(self.id, name, to, step=step)

    async def download_checkpoint(self, step: int, to: str | Path) -> list[Path]:
        """Download the files of its checkpoint of a step into a folder, and continue what broke off. Returns their paths."""
        return await self._client.download_checkpoint(self.id, step, to)


class AsyncJobHandle(AsyncJobActions):
    """A job as `AsyncClient` returns it."""

    _metrics: Metrics | None = PrivateAttr(None)

    @staticmethod
    def of(job: Job, client: "AsyncClient") -> "AsyncJobHandle":
        handle = AsyncJobHandle.model_construct(**dict(job))
        handle._client = client
        return handle

    async def refresh(self) -> "AsyncJobHandle":
        """The job, read again."""
        return await self._client.job(self.id)

    async def wait(self, timeout_s: float | None = None) -> "AsyncJobHandle":
        """The job once it has ended. Raises `WaitTimeout` when that takes longer than `timeout_s`."""
        return await self._client.wait(self.id, timeout_s)

    def events(
        self, after: str | None = None, *, logs: bool = False, rank: int | None = None, ranks: bool = False
    ) -> AsyncGenerator[Event]:
        """Its events, as they happen, to its end."""
        return self._client.events(self.id, after, logs=logs, rank=rank, ranks=ranks)

    async def metrics(self, *, since: int = 0, max_points: int = 1000) -> Metrics:
        """Its step records."""
        return await self._client.metrics(self.id, since=since, max_points=max_points)

    async def curves(
        self,
        names: str | Sequence[str] = "loss",
        *,
        from_step: int = 1,
        to_step: int | None = None,
        buckets: int = 400,
    ) -> Curves:
        """Its metrics over a range of steps, in buckets with their extremes."""
        return await self._client.curves(self.id, names, from_step=from_step, to_step=to_step, buckets=buckets)

    async def incidents(
        self, *, after: int = 0, newest: bool = False, before: int | None = None, limit: int = 100
    ) -> Incidents:
        """Its incidents and their repairs."""
        return await self._client.incidents(self.id, after=after, newest=newest, before=before, limit=limit)

    async def timeline(self) -> Timeline:
        """Its states over time."""
        return await self._client.timeline(self.id)

    async def history_page(self, *, before: int | None = None, limit: int = 100) -> HistoryPage:
        """Its events, newest first."""
        return await self._client.history_page(self.id, before=before, limit=limit)

    async def plan(self) -> Plan:
        """Sizes of its model, step and corpus."""
        return await self._client.plan(self.id)

    async def checkpoints(self, *, before: int | None = None, limit: int = 100) -> Checkpoints:
        """Its checkpoints, newest first."""
        return await self._client.checkpoints(self.id, before=before, limit=limit)

    async def verify_checkpoint(self, position: int) -> Operation:
        """Verify a checkpoint (its `position`) on the cluster."""
        return await self._client.verify_checkpoint(self.id, position)

    async def export_checkpoint(self, position: int, *, dtype: str = "fp32") -> Operation:
        """Export a checkpoint (its `position`) on the cluster as a Hugging Face folder beside it."""
        return await self._client.export_checkpoint(self.id, position, dtype=dtype)

    async def operations(self, *, before: str | None = None, limit: int = 20) -> Operations:
        """Its verifications and exports, newest first."""
        return await self._client.operations(self.id, before=before, limit=limit)

    async def trace(self, *, steps: int = 3) -> Trace:
        """Trace its ranks during the next steps."""
        return await self._client.trace(self.id, steps=steps)

    async def traces(self, *, before: str | None = None, limit: int = 20) -> Traces:
        """Its traces, newest first."""
        return await self._client.traces(self.id, before=before, limit=limit)

    async def trace_summary(self, trace: str, *, step: int | None = None) -> TraceSummary:
        """Each rank's time by category."""
        return await self._client.trace_summary(self.id, trace, step=step)

    async def ranks(self, *, before: int | None = None, limit: int = 100) -> RankMetricsPage:
        """Samples of its ranks, newest first."""
        return await self._client.ranks(self.id, before=before, limit=limit)

    async def resources(self) -> ResourceReport:
        """Memory and traffic of its ranks, by formula and measured."""
        return await self._client.resources(self.id)

    async def logs(
        self,
        *,
        rank: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        around: int | None = None,
    ) -> Logs:
        """Its log lines."""
        return await self._client.logs(self.id, rank=rank, after=after, limit=limit, tail=tail, around=around)

    async def search_logs(  # noqa: PLR0913 - a condition each
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
        return await ask(since=since, until=until, after=after, limit=limit)

    async def watch(self, every_s: float = 1.0, display: notebook.Display | None = None) -> "AsyncJobHandle":
        """Show the job in a notebook until it ends, redrawn at most every `every_s` seconds. Returns the ended job."""
        shown = (display or notebook.ipython_display)(await self._drawn())
        due = notebook.Due(every_s)
        async for _ in self.events(self.cursor):
            if due():
                now = await self._client.retry_unreachable(self.refresh)
                shown.update(await now._drawn())
        ended = await self._client.retry_unreachable(self.refresh)
        shown.update(await ended._drawn())
        return ended

    async def _drawn(self) -> Self:
        """The job's HTML with its loss curve."""
        self._metrics = await self._read_curve()
        return self

    async def _read_curve(self) -> Metrics | None:
        try:
            return await self.metrics(max_points=notebook.POINTS)
        # A closed client raises RuntimeError. A notebook that is opened later shows what was last read.
        except (ApiError, RuntimeError):
            return None

    def _repr_html_(self) -> str:
        return notebook.html(self, self._metrics or runtime.at_once(self._read_curve))
