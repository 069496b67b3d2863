"""The model registry: models, their versions and aliases."""

import hashlib
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response

from ...service.models import aliases, versions
from ...service.models.versions import Submission
from ...service.queries import models
from ...service.schemas.model import (
    LONGEST,
    MOST_NUMBER,
    PATTERN,
    AliasRequest,
    Model,
    ModelAlias,
    ModelHistory,
    Models,
    ModelVersion,
    ModelVersions,
    VersionRequest,
)
from ..http import request_body
from ..http.dependencies import Actor, In, Key
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["models"])

_NAMED: Final = "Lower-case letters, digits and dashes."
Name = Annotated[str, Path(pattern=PATTERN, max_length=LONGEST, description=_NAMED)]
Alias = Annotated[str, Path(pattern=PATTERN, max_length=LONGEST, description=_NAMED)]
Limit = Annotated[int, Query(ge=1, le=200)]
_BODY_CODES: Final = (
    "invalid_encoding",
    "invalid_syntax",
    "request_timeout",
    "spec_too_large",
    "unsupported_media_type",
)
_VERSION: Final = request_body.described(
    ["VersionRequest"],
    {
        "checkpoint": {"job": "shakespeare", "step": 400, "notes": "The first that rhymes."},
        "file": {"job": "shakespeare", "artifact": "vocabulary.json"},
    },
)
_ALIAS: Final = request_body.described(["AliasRequest"], {"move": {"version": 4, "expected": 3}})
_EXPECTED: Final = "The version that the alias names now; another one refuses the change. By default any."


@router.get("/models", operation_id="listModels", summary="List models", responses=describe("invalid_request"))
async def list_models(
    context: In,
    after: Annotated[str | None, Query(max_length=LONGEST, description="`next` of the previous page.")] = None,
    limit: Limit = 50,
) -> Models:
    """One page of models that have versions, by name."""
    return await models.list_models(context.store, after, limit)


@router.get(
    "/models/{model}",
    operation_id="getModel",
    summary="Read a model",
    responses=describe("model_not_found", "invalid_request"),
)
async def get_model(model: Name, context: In) -> Model:
    """A model with its newest version's number and its aliases."""
    return await models.get_model(context.store, model)


@router.get(
    "/models/{model}/history",
    operation_id="getModelHistory",
    summary="Read a model's history",
    responses=describe("model_not_found", "invalid_request"),
)
async def history(
    model: Name,
    context: In,
    before: Annotated[int | None, Query(ge=1, lt=2**53, description="Only entries before this position.")] = None,
    limit: Limit = 50,
) -> ModelHistory:
    """Who created and deleted versions, and moved aliases, newest first."""
    return await models.history(context.store, model, before, limit)


@router.get(
    "/models/{model}/versions",
    operation_id="listVersions",
    summary="List the versions of a model",
    responses=describe("model_not_found", "invalid_request"),
)
async def list_versions(
    model: Name,
    context: In,
    before: Annotated[int | None, Query(ge=1, le=MOST_NUMBER, description="`next` of the previous page.")] = None,
    limit: Limit = 50,
) -> ModelVersions:
    """One page of versions, newest first."""
    return await models.list_versions(context.store, model, before, limit)


@router.post(
    "/models/{model}/versions",
    operation_id="createVersion",
    summary="Create a version of a model",
    status_code=201,
    response_model=ModelVersion,
    responses={
        200: {"model": ModelVersion, "description": "The version already existed: same key, same body."},
        **describe(
            *(
                "job_not_found",
                "checkpoint_not_found",
                "checkpoint_deleted",
                "checkpoint_corrupt",
                "artifact_not_found",
            ),
            *("pin_underway", "too_many_operations", "idempotency_conflict", *_BODY_CODES, "invalid_request"),
        ),
    },
    openapi_extra={"requestBody": _VERSION},
)
async def create_version(
    model: Name, request: Request, answer: Response, context: In, actor: Actor, idempotency_key: Key = None
) -> ModelVersion:
    """Name a job's checkpoint, or a file that its program logged, as the next version. The cluster pins the checkpoint.

    A model is created with its first version.
    """
    wanted = await _read(request, VersionRequest)
    submission = Submission(
        idempotency_key, hashlib.sha256(f"{model}\n{wanted.model_dump_json()}".encode()).hexdigest(), actor
    )
    made, created = await versions.create(context.store, model, wanted, submission)
    context.wake_dispatcher()
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/models/{model}/versions/{made.number}"
    return made


@router.get(
    "/models/{model}/versions/{version}",
    operation_id="getVersion",
    summary="Read a version of a model",
    responses=describe("model_not_found", "version_not_found", "invalid_request"),
)
async def get_version(
    model: Name,
    version: Annotated[str, Path(pattern=PATTERN, max_length=LONGEST, description="A number, an alias, or `latest`.")],
    context: In,
) -> ModelVersion:
    """A version by its number or an alias."""
    return await models.get_version(context.store, model, version)


@router.delete(
    "/models/{model}/versions/{version}",
    operation_id="deleteVersion",
    summary="Delete a version of a model",
    responses=describe("model_not_found", "version_aliased", "invalid_request"),
)
async def delete_version(
    model: Name,
    version: Annotated[int, Path(ge=1, le=MOST_NUMBER, description="Number of the version.")],
    context: In,
    actor: Actor,
) -> Model:
    """Delete a version that no alias names. Its checkpoint stays pinned, and its number is not given again. Repeating is harmless."""
    return await versions.delete(context.store, model, version, actor)


@router.put(
    "/models/{model}/aliases/{alias}",
    operation_id="setAlias",
    summary="Set an alias of a model",
    responses=describe(
        *("model_not_found", "version_not_found", "alias_moved", "invalid_alias", *_BODY_CODES, "invalid_request")
    ),
    openapi_extra={"requestBody": _ALIAS},
)
async def set_alias(model: Name, alias: Alias, request: Request, context: In, actor: Actor) -> ModelAlias:
    """Let an alias name a version, at once for all readers. Repeating is harmless."""
    return await aliases.put(context.store, model, alias, await _read(request, AliasRequest), actor)


@router.delete(
    "/models/{model}/aliases/{alias}",
    operation_id="removeAlias",
    summary="Remove an alias of a model",
    responses=describe("model_not_found", "alias_moved", "invalid_request"),
)
async def remove_alias(
    model: Name,
    alias: Alias,
    context: In,
    actor: Actor,
    expected: Annotated[int | None, Query(ge=1, le=MOST_NUMBER, description=_EXPECTED)] = None,
) -> Model:
    """Remove an alias. Harmless if there is none of this name."""
    return await aliases.remove(context.store, model, alias, expected, actor)


async def _read(request: Request, kind: type[Any]) -> Any:
    form = request_body.format_of(request)
    return request_body.validated(kind, parse(await request_body.read(request), form))
