"""Health: `/healthz` reports that the process is alive, `/readyz` that it can serve requests.

An API whose cluster is away still serves what is stored and takes jobs into the queue: it is `degraded`, not unready. So is one whose
database can only be read.
"""

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from ...service import nodes
from ...service.database_errors import DatabaseError, DatabaseUnreachable
from ...service.schemas.server import Check, Health, Readiness
from ..http.dependencies import Context, In

router = APIRouter(tags=["service"])

#: Seconds that the database may take to respond: less than the timeout of a probe.
_DATABASE_S = 3.0


#: Probes have no token; the responses name no job and no machine.
_OPEN: dict[str, Any] = {"security": []}


@router.get("/healthz", operation_id="health", summary="Check that the process responds", openapi_extra=_OPEN)
async def healthz() -> Health:
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="readiness",
    summary="Check that the API is ready",
    responses={
        503: {"model": Readiness, "description": "The database cannot be read, or its schema is of another version."}
    },
    openapi_extra=_OPEN,
)
async def readyz(answer: Response, context: In) -> Readiness:
    """`ready`; `degraded` if no dispatcher reaches the cluster or the database is read-only; `unready` (503) without a database."""
    try:
        async with asyncio.timeout(_DATABASE_S):
            cluster = await _cluster(context)
    except (TimeoutError, DatabaseError) as error:
        answer.status_code = 503
        checks = {"database": _failed(_cause(context, error)), "cluster": Check(ok=False, message="Unknown.")}
        return Readiness(status="unready", checks=checks)
    unwritable = context.store.unwritable
    database = Check(ok=True) if unwritable is None else _failed(unwritable)
    status = "ready" if cluster.ok and database.ok else "degraded"
    return Readiness(status=status, checks={"database": database, "cluster": cluster})


def _cause(context: Context, error: TimeoutError | DatabaseError) -> DatabaseError:
    if isinstance(error, DatabaseError):
        return error
    silent = DatabaseUnreachable(f"no answer within {_DATABASE_S:g} s")
    context.store.failed(silent)
    return silent


def _failed(error: DatabaseError) -> Check:
    return Check(ok=False, code=error.code, message=error.message, remedy=error.remedy)


async def _cluster(context: Context) -> Check:
    alive, age_s = await nodes.last_seen(context.store)
    patience_s = 5 * context.settings.nodes_s + 15
    if age_s is not None and age_s > patience_s:
        return Check(ok=False, message=f"No dispatcher has seen the cluster for {age_s:.0f} s.")
    if not alive:
        return Check(ok=False, message="No dispatcher has seen a machine of the cluster yet.")
    return Check(ok=True, message=f"{alive} machine{'s' if alive > 1 else ''}.")
