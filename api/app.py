"""Builds the app: one store, one hub of watchers, every route, and a problem body for every error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial

from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute

from ..service.jobs.code_archives import CodeStorage
from ..service.queries.storage_reads import StorageReads
from ..service.settings import Settings
from ..service.store.engine import Store
from ..service.store.positions import positions
from ..version import __version__
from . import openapi
from .http import problems
from .http.authentication import Authenticated, Authenticator
from .http.dependencies import Context
from .http.origin_guard import LOOPBACK, AllowedHosts, OwnOrigin
from .http.query_parameters import refuse_unknown
from .http.watch_hub import Hub
from .routes import (
    advice,
    artifacts,
    certificates,
    checkpoint_files,
    cluster,
    code,
    dashboard,
    events,
    execs,
    faults,
    health,
    history,
    job_life,
    jobs,
    logs,
    metrics,
    models,
    nodes,
    operations,
    profiles,
    ranks,
    schema,
    secrets,
    session,
    sparklines,
    streams,
    sweeps,
    system,
    traces,
)

_DESCRIPTION = """Distributed training jobs on Ray.

Submit a job spec (YAML or JSON), watch its events, cancel it. Every refusal is `application/problem+json` with a stable
`code` and, for each finding, the field, what is wrong and a remedy."""

_TAGS = [
    {"name": "jobs", "description": "Submit, list, read and cancel training jobs."},
    {"name": "code", "description": "Upload a folder of code for jobs that run a command."},
    {"name": "sweeps", "description": "Run many trials of one job, and stop the worse ones early."},
    {"name": "secrets", "description": "Store secrets for the ranks of jobs."},
    {"name": "telemetry", "description": "Follow a job: live events, metrics, logs."},
    {
        "name": "checkpoints",
        "description": "Download a job's checkpoints, or let the cluster verify, pin or export them.",
    },
    {"name": "models", "description": "Name checkpoints as versions of models, and versions by aliases."},
    {"name": "faults", "description": "Inject faults into running jobs, to test their recovery."},
    {"name": "cluster", "description": "The machines on which jobs run."},
    {"name": "service", "description": "Health and schemas."},
]


def asks_for_token(settings: Settings) -> bool:
    """Whether requests need a token. Where users opt out of it, the API of this machine alone still asks for one."""
    return not settings.insecure_allow_remote or settings.host in LOOPBACK


def create_app(settings: Settings, store: Store, wake: asyncio.Event | None = None) -> FastAPI:
    """The HTTP API over an open store, which the caller closes. `wake` is set to wake a dispatcher in this process."""
    authenticator = Authenticator(settings) if asks_for_token(settings) else None
    app = FastAPI(
        title="Shardyard",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=_lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's own page runs scripts of another host: see routes/dashboard.py
        redoc_url=None,
    )
    hub = Hub(partial(positions, store))
    storage = (StorageReads(settings), CodeStorage(settings))
    app.state.context = Context(store, settings, hub, wake or asyncio.Event(), authenticator, *storage)
    app.add_middleware(Authenticated, authenticator=authenticator)
    app.add_middleware(OwnOrigin, hosts=AllowedHosts(settings))  # the outermost: it runs before all others
    problems.install(app)
    app.router.routes.extend(_routes())
    app.openapi = partial(openapi.document, app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Every route, shared by the apps of a process: FastAPI builds each at the first request that looks at it."""
    api = APIRouter()
    for part in (
        *(jobs, job_life, advice),
        certificates,
        code,
        events,
        metrics,
        system,
        logs,
        history,
        sparklines,
        artifacts,
        checkpoint_files,
        operations,
        *(models, traces, profiles, execs, streams),
        faults,
        *(nodes, cluster),
        schema,
        ranks,
        secrets,
        sweeps,
        session,
    ):
        refused = problems.describe("invalid_request")
        api.include_router(part.router, prefix="/v1", responses=refused, dependencies=[Depends(refuse_unknown)])
    api.include_router(health.router, dependencies=[Depends(refuse_unknown)])
    api.include_router(dashboard.router)
    return tuple(api.routes)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.context.hub.close()
