"""The calls of `AsyncClient` that change a job: each returns the job as it is then."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ....service.schemas.certificate import Certificate
from ....service.schemas.job import Job
from ....strategies.layout import Layout
from .. import certificate_requests, requests
from ..transport import Call
from .job import AsyncJobHandle


class AsyncJobChanges(ABC):
    """Methods of one request each. The client implements how a request is sent."""

    @abstractmethod
    async def _handle(self, call: Call[Job]) -> AsyncJobHandle: ...

    async def edit(
        self,
        job: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        notes: str | None = None,
        pinned: bool | None = None,
    ) -> AsyncJobHandle:
        """Change a job's name, labels or notes, or pin it, in any state. `labels` replace all of them; what is None stays.

        A job that gets another name is given by its id: the same request by name, sent again, would rename an older job.
        Raises `ApiError` with the fields and their remedies.
        """
        given = None if labels is None else dict(labels)
        return await self._handle(requests.edit(job, name=name, labels=given, notes=notes, pinned=pinned))

    async def cancel(self, job: str) -> AsyncJobHandle:
        """Cancel a job. Repeating the call is harmless. Raises `ApiError` `job_ended` if the job succeeded or failed."""
        return await self._handle(requests.cancel(job))

    async def pause(self, job: str) -> AsyncJobHandle:
        """Pause a job: it saves a checkpoint and frees its devices. Repeating the call is harmless. Raises `ApiError` `job_ended`."""
        return await self._handle(requests.pause(job))

    async def resume(self, job: str) -> AsyncJobHandle:
        """Queue a paused job again. Repeating the call is harmless. Raises `ApiError` `job_ended`, and `job_pausing` while it saves."""
        return await self._handle(requests.resume(job))

    async def retry(self, job: str, *, idempotency_key: str | None = None) -> AsyncJobHandle:
        """Submit a job that failed or was cancelled again. It continues from its newest checkpoint. Returns the new job.

        Repeating a call with the same key gives the same job. Raises `ApiError` `job_not_ended`, `job_succeeded`.
        """
        return await self._handle(requests.retry(job, idempotency_key))

    async def delete(self, job_id: str) -> AsyncJobHandle:
        """Delete an ended job, by its id. It can be restored for a day, or `undelete_s` of the server. Repeating is harmless.

        Raises `ApiError` `job_not_ended`, `job_pinned`, and `job_in_use` if another job continues from its checkpoint.
        """
        return await self._handle(requests.delete(job_id))

    async def undelete(self, job_id: str) -> AsyncJobHandle:
        """Restore a deleted job, by its id. Repeating the call is harmless. Raises `ApiError` `job_deleted` if it is being removed."""
        return await self._handle(requests.undelete(job_id))

    async def attach_certificate(self, job: str, certificate: Certificate) -> AsyncJobHandle:
        """Store what `shardyard verify` found of the job's own spec, in place of an earlier certificate. Repeating the call is harmless.

        Raises `ApiError` `invalid_certificate`, and `certificate_mismatch` if it is of another spec.
        """
        return await self._handle(certificate_requests.attach(job, certificate))

    async def reshard(self, job: str, layout: Layout | Mapping[str, Any]) -> AsyncJobHandle:
        """Continue a job that has not ended with another layout, from a checkpoint of its next step. Repeating the call is harmless.

        Raises `ApiError` with the fields and their remedies, and `job_ended`.
        """
        return await self._handle(requests.reshard(job, layout))
