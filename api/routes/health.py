"""Health: `/healthz` says that the process lives, `/readyz` that it can do its work.

An API whose cluster is away still serves what is stored and takes jobs into the queue: it is `degraded`, not unready.
"""

import asyncio
import logging
from datetime import UTC, datetime

from fastapi import APIRouter, Response

from ...service import nodes
from ..context import Context, In
from ..models import Check, Health, Readiness

router = APIRouter(tags=["service"])
log = logging.getLogger(__name__)

#: Seconds that the database may take to answer.
_DATABASE_S = 5.0


@router.get("/healthz", operation_id="health", summary="Is the process alive?")
async def healthz() -> Health:
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="readiness",
    summary="Can it do its work?",
    responses={503: {"model": Readiness, "description": "The database does not answer."}},
)
async def readyz(answer: Response, context: In) -> Readiness:
    """`ready`; `degraded` without a dispatcher that sees the cluster; `unready` (503) without the database."""
    try:
        async with asyncio.timeout(_DATABASE_S):
            cluster = await _cluster(context)
    except Exception:  # whatever a driver raises, the answer is the same; the details are for the log
        log.warning("the database does not answer", exc_info=True)
        answer.status_code = 503
        database, cluster = (
            Check(ok=False, message="The database does not answer."),
            Check(ok=False, message="Unknown."),
        )
        return Readiness(status="unready", checks={"database": database, "cluster": cluster})
    status = "ready" if cluster.ok else "degraded"
    return Readiness(status=status, checks={"database": Check(ok=True), "cluster": cluster})


async def _cluster(context: Context) -> Check:
    machines = await nodes.all_nodes(context.store, context.settings)
    patience_s = 5 * context.settings.nodes_s + 15
    ages = [(datetime.now(UTC) - node.seen_at).total_seconds() for node in machines if node.alive]
    if not ages:
        return Check(ok=False, message="No dispatcher has seen a machine of the cluster yet.")
    if min(ages) > patience_s:
        return Check(ok=False, message=f"No dispatcher has seen the cluster for {min(ages):.0f} s.")
    return Check(ok=True, message=f"{len(ages)} machine{'s' if len(ages) > 1 else ''}.")
