"""Makes every error a problem+json body (RFC 9457) with a stable code; internals are not shown."""

import logging
import re
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection

from ...service.errors import ShardyardError
from ...service.schemas.problem import FieldError, Problem
from ..errors import InvalidDocument
from .dashboard_files import not_found
from .validation_errors import parameter_errors

log = logging.getLogger(__name__)

#: code → (HTTP status, title). A service error with another code is an internal error.
CODES: dict[str, tuple[int, str]] = {
    "invalid_encoding": (400, "The body is not UTF-8"),
    "invalid_syntax": (400, "The body is not well-formed"),
    "invalid_cursor": (400, "Unknown cursor"),
    "unauthenticated": (401, "Not signed in"),
    "foreign_origin": (403, "Sent from another site"),
    "faults_disabled": (403, "Fault injection is not enabled"),
    "exec_disabled": (403, "Commands beside ranks are not enabled"),
    "not_found": (404, "No such page"),
    "job_not_found": (404, "No such job"),
    "trace_not_found": (404, "No such trace"),
    "checkpoint_not_found": (404, "No such checkpoint"),
    "checkpoint_file_not_found": (404, "No such file of the checkpoint"),
    "operation_not_found": (404, "No such operation"),
    "code_not_found": (404, "No such archive of code"),
    "sweep_not_found": (404, "No such sweep"),
    "artifact_not_found": (404, "No such file of the job"),
    "certificate_not_found": (404, "The job has no certificate"),
    "model_not_found": (404, "No such model"),
    "version_not_found": (404, "No such version of the model"),
    "node_not_found": (404, "No such machine"),
    "method_not_allowed": (405, "Method not allowed"),
    "request_timeout": (408, "The body did not arrive in time"),
    "idempotency_conflict": (409, "The idempotency key was used for another body"),
    "ambiguous_node": (409, "Several machines match"),
    "state_changed": (409, "The job changed meanwhile"),
    "job_ended": (409, "The job has ended"),
    "sweep_ended": (409, "The sweep has ended"),
    "job_pausing": (409, "The job is being paused"),
    "job_not_ended": (409, "The job has not ended"),
    "job_succeeded": (409, "The job has succeeded"),
    "job_pinned": (409, "The job is pinned"),
    "job_in_use": (409, "Another job continues from it"),
    "job_in_models": (409, "A model has a version of it"),
    "version_aliased": (409, "Aliases name the version"),
    "alias_moved": (409, "The alias names another version"),
    "checkpoint_in_models": (409, "A model has a version of it"),
    "pin_underway": (409, "The checkpoint is being pinned or unpinned"),
    "job_not_running": (409, "The job is not running"),
    "trace_open": (409, "A trace is being recorded"),
    "trace_not_possible": (409, "The job has no steps to trace"),
    "exec_open": (409, "A command runs beside this rank"),
    "port_closed": (409, "Nothing listens on the port"),
    "too_many_profiles": (409, "Too many profiles of one job"),
    "too_many_secrets": (409, "Too many secrets"),
    "too_many_operations": (409, "Too many operations of one job"),
    "export_underway": (409, "The job exports this checkpoint itself"),
    "export_unsupported": (409, "The checkpoint holds a program's own files"),
    "checkpoint_deleted": (409, "The checkpoint was deleted"),
    "checkpoint_corrupt": (409, "The checkpoint is corrupt"),
    "job_deleted": (410, "The job was deleted"),
    "spec_too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "Unsupported content type"),
    "range_not_satisfiable": (416, "The range is not in the file"),
    "invalid_request": (422, "Invalid parameters"),
    "invalid_spec": (422, "Invalid job spec"),
    "invalid_pattern": (422, "Not a regular expression"),
    "invalid_fault": (422, "Impossible fault"),
    "command_too_long": (422, "The command is too long"),
    "profile_rank_unknown": (422, "No such rank"),
    "profile_not_possible": (422, "No such profile of this job"),
    "invalid_layout": (422, "Impossible layout"),
    "missing_file": (422, "A file is missing"),
    "not_a_file": (422, "Not a file"),
    "file_too_large": (422, "A file is too large"),
    "too_many_files": (422, "Too many files"),
    "empty_corpus": (422, "The corpus is empty"),
    "too_many_ranks": (422, "More ranks than devices"),
    "does_not_fit": (422, "Not enough memory"),
    "unknown_checkpoint": (422, "No such checkpoint to resume from"),
    "resume_mismatch": (422, "The checkpoint does not fit the job"),
    "invalid_alias": (422, "Impossible alias"),
    "invalid_certificate": (422, "The certificate's signature is wrong"),
    "certificate_mismatch": (422, "The certificate is of another spec"),
    "invalid_code": (422, "Invalid archive of code"),
    "unknown_code": (422, "No such archive of code"),
    "unknown_secret": (422, "No such secret"),
    "internal_error": (500, "Internal error"),
    "secrets_key_unusable": (503, "The key of secrets cannot be used"),
    "code_storage_failed": (503, "The storage for code failed"),
    "artifact_storage_failed": (503, "The storage of logged files failed"),
    "checkpoint_storage_failed": (503, "The storage of checkpoints failed"),
    "rank_unreachable": (503, "The rank cannot be reached"),
    "cluster_unreachable": (503, "The cluster does not answer"),
    "database_unreachable": (503, "The database does not answer"),
    "database_busy": (503, "The database is busy"),
    "database_read_only": (503, "The database is read-only"),
    "database_full": (503, "The database's disk is full"),
    "database_missing": (503, "The database does not exist"),
    "database_denied": (503, "The database refuses its user"),
    "database_corrupt": (503, "The database is corrupt"),
    "database_failed": (503, "The database failed"),
    "schema_missing": (503, "The database has no schema"),
    "schema_too_old": (503, "The database's schema is too old"),
    "schema_too_new": (503, "The database's schema is too new"),
    "schema_unknown": (503, "The database has another program's schema"),
    "schema_damaged": (503, "The database lacks a table or column"),
    "files_too_slow": (503, "The files could not be checked in time"),
    "advisor_busy": (503, "The layout advisor has not answered in time"),
    "too_many_searches": (503, "Too many searches at once"),
    "search_too_slow": (503, "The search took too long"),
}

#: Codes that any route may answer with while the database cannot serve.
DATABASE = tuple(code for code in CODES if code.startswith(("database_", "schema_")))
#: Codes that every route below `/v1` may answer with.
_EVERYWHERE = ("unauthenticated", "foreign_origin", "internal_error", *DATABASE)

_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


def install(app: FastAPI) -> None:
    """Install a handler with a problem body for every kind of error."""
    app.add_exception_handler(ShardyardError, _shardyard_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(WebSocketRequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _internal_error)


def response(
    request: HTTPConnection,
    code: str,
    detail: str,
    errors: list[FieldError] | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem+json answer for `code`; `status` overrides the table's."""
    number, title = CODES.get(code, (500, "Internal error"))
    body = Problem(
        type=f"urn:shardyard:problem:{code}",
        title=title,
        status=status or number,
        code=code,
        detail=detail,
        instance=request.url.path,
        errors=errors or [],
    )
    content = body.model_dump(mode="json")
    # Browsers keep an answer 410 forever unless it says otherwise, and a deleted job may be restored.
    fresh = {"Cache-Control": "no-store"} if body.status == HTTPStatus.GONE else {}
    given = {**fresh, **(headers or {})}
    return JSONResponse(content, body.status, headers=given, media_type="application/problem+json")


def refusal(request: HTTPConnection, error: ShardyardError) -> Response:
    """The answer to a request that is refused or failed. The error's code is one of `CODES`."""
    if isinstance(error, InvalidDocument):
        return response(request, error.code, error.message, error.errors)
    errors = [FieldError(field=error.field, message=error.message, remedy=error.remedy)]
    headers = {"WWW-Authenticate": "Bearer"} if error.code == "unauthenticated" else {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return response(request, error.code, error.message, errors, headers=headers)


def describe(*codes: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` for the codes that a route may answer with, and for those that every route may."""
    described: dict[int | str, dict[str, Any]] = {}
    gone = ("job_deleted",) if "job_not_found" in codes else ()
    for code in dict.fromkeys((*codes, *gone, *_EVERYWHERE)):
        status, title = CODES[code]
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        entry = described.setdefault(status, {"description": "", "content": content})
        entry["description"] = "; ".join(filter(None, [entry["description"], f"`{code}`: {title.lower()}"]))
    return described


async def _shardyard_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ShardyardError)
    if error.code not in CODES:
        log.error("an error of the service that no user caused", exc_info=error)
        return await _internal_error(request, error)
    return refusal(request, error)


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)
    errors = parameter_errors(error.errors())
    return response(request, "invalid_request", f"{errors[0].field}: {errors[0].message}", errors)


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code)
    headers = dict(error.headers or {})
    if code == "not_found":
        page = not_found(request)
        if page is not None:
            return page
        detail = f"There is no such path: {request.url.path}."
        errors = [FieldError(message=detail, remedy="GET /docs lists all paths.")]
    elif code == "method_not_allowed":
        headers["Allow"] = _methods(request) or headers.get("Allow", "GET")
        detail = f"{request.method} is not supported at {request.url.path}."
        errors = [FieldError(message=detail, remedy=f"Use {headers['Allow']}.")]
    else:
        detail, errors = str(error.detail), []
    phrase = code or HTTPStatus(error.status_code).name.lower()
    return response(request, phrase, detail, errors, status=error.status_code, headers=headers)


def _methods(request: Request) -> str:
    """Every method of the path: the framework reports only those of the first matching route."""
    found: set[str] = set()
    for template, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), request.url.path):
            found |= {method.upper() for method in operations}
    return ", ".join(sorted(found))


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """An answer that is not received: the client that sent the body has disconnected."""
    return Response(status_code=400)


async def _internal_error(request: Request, error: Exception) -> Response:
    """The log gets the details (the server writes the traceback) under a number; the caller gets only the number."""
    number = uuid.uuid4().hex[:12]
    log.error("error %s in %s %s: %s", number, request.method, request.url.path, type(error).__name__)
    remedy = FieldError(message=f"Reference {number}.", remedy="Search for this reference in the control plane's log.")
    return response(request, "internal_error", "An internal error occurred on the server.", [remedy])
