# Generated from api/client/_async/model_endpoints.py; change that file, then run: make sync-client
"""The calls of `Client` about the model registry."""

from abc import ABC, abstractmethod
from typing import TypeVar

from ....service.schemas.model import Model, ModelAlias, ModelHistory, Models, ModelVersion, ModelVersions
from .. import model_requests as requests
from ..transport import Call

T = TypeVar("T")


class ModelEndpoints(ABC):
    """Methods of one request each. The client implements how a request is sent."""

    @abstractmethod
    def _send(self, call: Call[T]) -> T: ...

    def models(self, *, after: str | None = None, limit: int = 50) -> Models:
        """One page of models that have versions, by name."""
        return self._send(requests.models(after, limit))

    def model(self, model: str) -> Model:
        """A model with its newest version's number and its aliases. Raises `ApiError` `model_not_found`."""
        return self._send(requests.model(model))

    def model_history(self, model: str, *, before: int | None = None, limit: int = 50) -> ModelHistory:
        """Who created and deleted versions of a model, and moved its aliases, newest first."""
        return self._send(requests.history(model, before, limit))

    def model_versions(self, model: str, *, before: int | None = None, limit: int = 50) -> ModelVersions:
        """One page of a model's versions below the number `before`, newest first."""
        return self._send(requests.versions(model, before, limit))

    def model_version(self, model: str, which: str | int = "latest") -> ModelVersion:
        """A version by its number or an alias. Raises `ApiError` `model_not_found`, `version_not_found`."""
        return self._send(requests.version(model, which))

    def create_version(
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
        return self._send(call)

    def delete_version(self, model: str, number: int) -> Model:
        """Delete a version. Its checkpoint stays, and stays pinned. Harmless if repeated. Raises `ApiError` `version_aliased`."""
        return self._send(requests.delete_version(model, number))

    def set_alias(self, model: str, alias: str, number: int, *, expected: int | None = None) -> ModelAlias:
        """Let an alias name a version. `expected`: the number that it names now, 0 for none; another one raises `alias_moved`."""
        return self._send(requests.set_alias(model, alias, number, expected))

    def remove_alias(self, model: str, alias: str, *, expected: int | None = None) -> Model:
        """Remove an alias. Harmless if there is none. Raises `ApiError` `alias_moved`."""
        return self._send(requests.remove_alias(model, alias, expected))
