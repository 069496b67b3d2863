"""The calls of `AsyncClient` that change a job: each returns the job as it is then."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ....service.schemas.job import Job
from ....strategies.layout import Layout
from .. import requests
from ..transport import Call
from .job import AsyncJobHandle


class AsyncJobChanges(ABC):
    """Methods of one request each. The client implements how a request is sent."""

    @abstractmethod
    async def _handle(self, call: Call[Job]) -> AsyncJobHandle: ...

    async def edit(
        self, job: str, *, name: str | None = None, labels: Mapping[str, str] | None = None, notes: str | None = None
    ) -> AsyncJobHandle:
        """Change a job's name, labels or notes, in any state. `labels` replace all of them; what is None stays.

        Raises `ApiError` with the fields and their remedies.
        """
        given = None if labels is None else dict(labels)
        return await self._handle(requests.edit(job, name=name, labels=given, notes=notes))

    async def cancel(self, job: str) -> AsyncJobHandle:
        """Cancel a job. Repeating the call is harmless. Raises `ApiError` `job_ended` if the job succeeded or failed."""
        return await self._handle(requests.cancel(job))

    async def pause(self, job: str) -> AsyncJobHandle:
        """Pause a job: it saves a checkpoint and frees its devices. Repeating the call is harmless. Raises `ApiError` `job_ended`."""
        return await self._handle(requests.pause(job))

    async def resume(self, job: str) -> AsyncJobHandle:
        """Queue a paused job again. Repeating the call is harmless. Raises `ApiError` `job_ended`, and `job_pausing` while it saves."""
        return await self._handle(requests.resume(job))

    async def reshard(self, job: str, layout: Layout | Mapping[str, Any]) -> AsyncJobHandle:
        """Continue a job that has not ended with another layout, from a checkpoint of its next step. Repeating the call is harmless.

        Raises `ApiError` with the fields and their remedies, and `job_ended`.
        """
        return await self._handle(requests.reshard(job, layout))
