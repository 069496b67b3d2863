"""The calls of `AsyncClient` about the model registry."""

from abc import ABC, abstractmethod
from typing import TypeVar

from ....service.schemas.model import Model, ModelAlias, ModelHistory, Models, ModelVersion, ModelVersions
from .. import model_requests as requests
from ..transport import Call

T = TypeVar("T")


class AsyncModelEndpoints(ABC):
    """Methods of one request each. The client implements how a request is sent."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T: ...

    async def models(self, *, after: str | None = None, limit: int = 50) -> Models:
        """One page of models that have versions, by name."""
        return await self._send(requests.models(after, limit))

    async def model(self, model: str) -> Model:
        """A model with its newest version's number and its aliases. Raises `ApiError` `model_not_found`."""
        return await self._send(requests.model(model))

    async def model_history(self, model: str, *, before: int | None = None, limit: int = 50) -> ModelHistory:
        """Who created and deleted versions of a model, and moved its aliases, newest first."""
        return await self._send(requests.history(model, before, limit))

    async def model_versions(self, model: str, *, before: int | None = None, limit: int = 50) -> ModelVersions:
        """One page of a model's versions below the number `before`, newest first."""
        return await self._send(requests.versions(model, before, limit))

    async def model_version(self, model: str, which: str | int = "latest") -> ModelVersion:
        """A version by its number or an alias. Raises `ApiError` `model_not_found`, `version_not_found`."""
        return await self._send(requests.version(model, which))

    async def create_version(
        self,
        model: str,
        job: str,
        *,
        step: int | None = None,
        artifact: str | None = None,
        notes: str | None = None,
        idempotency_key: str | None = None,
    ) -> ModelVersion:
        """Name a job's checkpoint (None: its newest), or a file that it logged, as the next version of a model.

        The cluster pins the checkpoint soon: `pinned` of `model_version` says whether it has. Repeating a call with the same key creates
        one version. Raises `ApiError` with the fields and their remedies.
        """
        call = requests.create_version(model, idempotency_key, job=job, step=step, artifact=artifact, notes=notes)
        return await self._send(call)

    async def delete_version(self, model: str, number: int) -> Model:
        """Delete a version. Its checkpoint stays, and stays pinned. Harmless if repeated. Raises `ApiError` `version_aliased`."""
        return await self._send(requests.delete_version(model, number))

    async def set_alias(self, model: str, alias: str, number: int, *, expected: int | None = None) -> ModelAlias:
        """Let an alias name a version. `expected`: the number that it names now, 0 for none; another one raises `alias_moved`."""
        return await self._send(requests.set_alias(model, alias, number, expected))

    async def remove_alias(self, model: str, alias: str, *, expected: int | None = None) -> Model:
        """Remove an alias. Harmless if there is none. Raises `ApiError` `alias_moved`."""
        return await self._send(requests.remove_alias(model, alias, expected))
