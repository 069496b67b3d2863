"""The control plane as a process: API and dispatcher together or each alone, and an end that loses no job.

Whatever ends here, gangs live on while jobs are active: the next control plane of the data folder finds them again.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI

from ...service.cluster.ray_cluster import Cluster
from ...service.cluster.ray_head import Head
from ...service.data_folder import PRIVATE_UMASK, close_to_others, make_private
from ...service.dispatch.dispatcher import Dispatcher
from ...service.errors import ClusterError, DatabaseBusy, DatabaseError, DatabaseUnreachable
from ...service.queries import jobs
from ...service.settings import Settings
from ...service.states import HOLDING
from ...service.store.engine import Store, parse
from ...service.store.jobs import Filter
from ...service.store.schema import upgrade
from .. import pidfile
from ..access_token import sign_in_link
from ..app import create_app
from ..errors import AlreadyRunning
from ..http.authentication import Authenticator
from .uvicorn_server import listen, serving, url_of

log = logging.getLogger(__name__)

Tell = Callable[[str], None]


def run_control_plane(settings: Settings, port: int | None, tell: Tell, tell_link: Tell) -> int:
    """API, dispatcher and embedded Ray until a signal. Returns the exit code.

    `tell_link` gets an address that signs a browser in once.
    Raises `AlreadyRunning`, `PortTaken`, `DataFolderOpen`, `TokenUnreadable`, `WeakToken`.
    """
    _close_to_others(settings, keeps=True)
    lock = pidfile.Lock(settings.data_dir)
    if not lock.take():
        running = pidfile.read(settings.data_dir)
        raise AlreadyRunning(running.url if running else None, running.pid if running else None, settings.data_dir)
    if settings.ray_address is None:  # the trainers run on this machine
        settings = settings.model_copy(update={"local_files": True})
    _log_to_stderr()
    try:
        return asyncio.run(_control_plane(settings, port, tell, tell_link))
    finally:
        lock.release()


def run_api(settings: Settings, port: int | None, tell: Tell) -> int:
    """The API alone until a signal. Raises `PortTaken`, `DataFolderOpen`, `TokenUnreadable`, `WeakToken`."""
    _close_to_others(settings, keeps=settings.token is None and settings.token_path is None)
    _log_to_stderr()
    return asyncio.run(_api(settings, port, tell))


def run_dispatcher(settings: Settings, tell: Tell) -> int:
    """The dispatcher alone until a signal. Raises `DataFolderOpen`."""
    _close_to_others(settings, keeps=settings.ray_address is None)
    _log_to_stderr()
    return asyncio.run(_dispatcher(settings, tell))


def migrate(settings: Settings) -> None:
    """Bring the database to this version's schema. Raises `DataFolderOpen`."""
    _close_to_others(settings, keeps=False)
    asyncio.run(upgrade(settings.database))


def _close_to_others(settings: Settings, *, keeps: bool) -> None:
    """What this process and all that it starts write is this user's alone, and so is what lies there from before.

    `keeps`: the process keeps something in the data folder beside the database. A pod keeps nothing in its own.
    """
    os.umask(PRIVATE_UMASK)
    database = parse(settings.database)
    file = Path(database.database or "") if database.get_backend_name() == "sqlite" else None
    if keeps or (file is not None and file.is_relative_to(settings.data_dir)):
        make_private(settings.data_dir)
    if file is not None:
        close_to_others(file.with_name(file.name + ending) for ending in ("", "-wal", "-shm"))


def active_jobs(settings: Settings) -> int:
    """How many jobs may hold devices now; 0 where there is no database yet."""
    url = parse(settings.database)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return 0
    return asyncio.run(_active_jobs(settings))


def end_ray(settings: Settings) -> bool:
    """End the embedded Ray head with everything on it. True when there was one."""
    if settings.ray_address is not None:
        return False
    head = Head(settings.data_dir)
    there = head.file.exists()
    head.shut_down()
    return there


async def _control_plane(settings: Settings, port: int | None, tell: Tell, tell_link: Tell) -> int:
    stop = _signals()
    await upgrade(settings.database)
    store, cluster, wake = Store(settings.database), Cluster(settings), asyncio.Event()
    app, authenticator = _app(settings, store, wake)
    listener = listen(settings.host, settings.port if port is None else port, exactly=port is not None)
    me = pidfile.Control.of_this_process(url_of(listener), authenticator.token_path if authenticator else None)
    try:
        async with (
            serving(app, listener) as server,
            _dispatching(Dispatcher(store, settings, cluster, wake)) as dispatcher,
        ):
            pidfile.write(settings.data_dir, me)
            tell(f"Shardyard runs at {me.url}. Stop it with Ctrl-C, or: shardyard down")
            if authenticator:
                tell_link(sign_in_link(me.url, authenticator.keys.code(os.geteuid())))
            await asyncio.wait([stop, server, dispatcher], return_when=asyncio.FIRST_COMPLETED)
            broken = [task for task in (server, dispatcher) if task.done()]
        pidfile.remove(settings.data_dir, me)
        await _leave_cluster(settings, store, cluster, tell)
        return 1 if broken else 0
    finally:
        pidfile.remove(settings.data_dir, me)
        await store.close()


def _app(settings: Settings, store: Store, wake: asyncio.Event | None = None) -> tuple[FastAPI, Authenticator | None]:
    """The app, with the token that it asks for read or made."""
    app = create_app(settings, store, wake)
    authenticator: Authenticator | None = app.state.context.authenticator
    if authenticator:
        authenticator.load()
    return app, authenticator


async def _api(settings: Settings, port: int | None, tell: Tell) -> int:
    stop = _signals()
    async with _opened(settings) as store:
        app, authenticator = _app(settings, store)
        listener = listen(settings.host, settings.port if port is None else port, exactly=True)
        async with serving(app, listener) as server:
            tell(f"The API listens at {url_of(listener)}.")
            if authenticator and authenticator.token_path:
                tell(f"Its access token is in {authenticator.token_path}.")
            await asyncio.wait([stop, server], return_when=asyncio.FIRST_COMPLETED)
            return int(server.done())


async def _dispatcher(settings: Settings, tell: Tell) -> int:
    stop = _signals()
    async with _opened(settings) as store:
        cluster = Cluster(settings)
        async with _dispatching(Dispatcher(store, settings, cluster)) as dispatcher:
            tell("The dispatcher runs.")
            await asyncio.wait([stop, dispatcher], return_when=asyncio.FIRST_COMPLETED)
            broken = dispatcher.done()
        await _disconnect(cluster)
    return int(broken)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    """The settings' database. Raises DatabaseError where somebody must act first; one that does not answer may come back."""
    store = Store(settings.database)
    try:
        with suppress(DatabaseUnreachable, DatabaseBusy):
            await store.check()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _dispatching(dispatcher: Dispatcher) -> AsyncIterator[asyncio.Task[None]]:
    """The dispatcher runs as long as the body does. Its task ends early only when it fails."""
    task = asyncio.create_task(dispatcher.run(), name="dispatcher")
    try:
        yield task
    finally:
        task.cancel()
        [error] = await asyncio.gather(task, return_exceptions=True)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("the dispatcher failed", exc_info=error)


async def _leave_cluster(settings: Settings, store: Store, cluster: Cluster, tell: Tell) -> None:
    """Without active jobs the embedded Ray head has no use; with them, it and their gangs live on."""
    active = await _count_active(store)
    if active or settings.ray_address is not None:
        await _disconnect(cluster)
    if active:
        jobs_go_on = "1 job goes" if active == 1 else f"{active} jobs go"
        tell(f"{jobs_go_on} on without the control plane. Watch over them again with: shardyard up")
    elif settings.ray_address is None:
        await _disconnect(cluster)
        await asyncio.to_thread(end_ray, settings)
        tell("Stopped, and Ray with it.")


async def _disconnect(cluster: Cluster) -> None:
    try:
        await cluster.disconnect()
    except ClusterError as error:
        log.warning("Ray was not left in order: %s", error)


async def _active_jobs(settings: Settings) -> int:
    store = Store(settings.database)
    try:
        return await _count_active(store)
    except DatabaseError:  # it was never migrated, or cannot serve
        return 0
    finally:
        await store.close()


async def _count_active(store: Store) -> int:
    pages = [await jobs.list_jobs(store, Filter(state=state), limit=200) for state in sorted(HOLDING)]
    return sum(len(page.items) for page in pages)


def _signals() -> "asyncio.Future[None]":
    """Done on the first SIGINT or SIGTERM; the second one has its usual effect."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def ring() -> None:
        if not stop.done():
            stop.set_result(None)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ring)
    return stop


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger(__name__.partition(".")[0]).setLevel(logging.INFO)
