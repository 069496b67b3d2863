"""The control plane as a process: API and dispatcher together or each alone, and a shutdown that loses no job.

While jobs are active, their gangs survive the end of this process: the next control plane of the data folder finds them again.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from fastapi import FastAPI

from ...service.cluster.ray_cluster import Cluster
from ...service.cluster.ray_head import Head
from ...service.data_folder import PRIVATE_UMASK, close_to_others, make_private
from ...service.database_errors import DatabaseBusy, DatabaseError, DatabaseMissing, DatabaseUnreachable, SchemaMissing
from ...service.database_url import parse
from ...service.dispatch.dispatcher import Dispatcher
from ...service.errors import ClusterError
from ...service.queries import jobs, sweeps
from ...service.settings import Settings
from ...service.states import FINAL, HOLDING, State
from ...service.store.engine import Store
from ...service.store.schema import upgrade
from .. import pidfile
from ..access_token import sign_in_link
from ..app import asks_for_token, create_app
from ..discarded_output import silence
from ..errors import AlreadyRunning
from ..http.authentication import Authenticator
from .uvicorn_server import is_on_all, listen, serving, url_of

log = logging.getLogger(__name__)

#: States of jobs that go on by themselves.
_OPEN: Final = frozenset(State) - FINAL - {State.PAUSED}

Echo = Callable[[str], None]


def run_control_plane(settings: Settings, port: int | None, echo: Echo, echo_link: Echo) -> int:
    """API, dispatcher and embedded Ray until a signal. Returns the exit code.

    `echo_link` is called with an address that signs a browser in once. Raises `AlreadyRunning`, `PortTaken`, `DataFolderOpen`,
    `TokenUnreadable`, `WeakToken`.
    """
    _close_to_others(settings, keeps=True)
    lock = pidfile.Lock(settings.data_dir)
    if not lock.take():
        running = pidfile.read(settings.data_dir)
        raise AlreadyRunning(running.url if running else None, running.pid if running else None, settings.data_dir)
    # The folder in which it was started may be removed, and Ray would let ranks import what lies there. All settings are absolute.
    os.chdir(settings.data_dir)
    if settings.ray_address is None:  # the ranks run on this machine
        settings = settings.model_copy(update={"local_files": True})
    _log_to_stderr()
    try:
        return asyncio.run(_control_plane(settings, port, echo, echo_link))
    finally:
        lock.release()


def run_api(settings: Settings, port: int | None, echo: Echo) -> int:
    """The API alone until a signal. Raises `PortTaken`, `DataFolderOpen`, `TokenUnreadable`, `WeakToken`."""
    makes_token = asks_for_token(settings) and settings.token is None and settings.token_path is None
    _close_to_others(settings, keeps=makes_token)
    _log_to_stderr()
    return asyncio.run(_api(settings, port, echo))


def run_dispatcher(settings: Settings, echo: Echo) -> int:
    """The dispatcher alone until a signal. Raises `DataFolderOpen`."""
    _close_to_others(settings, keeps=settings.ray_address is None)
    _log_to_stderr()
    return asyncio.run(_dispatcher(settings, echo))


def migrate(settings: Settings) -> None:
    """Migrate the database to this version's schema. Raises `DataFolderOpen`."""
    _close_to_others(settings, keeps=False)
    asyncio.run(upgrade(settings.database))


def _close_to_others(settings: Settings, *, keeps: bool) -> None:
    """Make all files that this process and its children write private to this user, and those that exist already.

    `keeps`: the process keeps files in the data folder beside the database. A pod keeps none in its own.
    """
    os.umask(PRIVATE_UMASK)
    database = parse(settings.database)
    file = Path(database.database or "") if database.get_backend_name() == "sqlite" else None
    if keeps or (file is not None and file.is_relative_to(settings.data_dir)):
        make_private(settings.data_dir)
    if file is not None:
        close_to_others(file.with_name(file.name + ending) for ending in ("", "-wal", "-shm"))


def active_jobs(settings: Settings) -> int | None:
    """The number of jobs that may hold devices now; 0 if there is no database yet, None if it cannot be read."""
    return _counted(settings, _count_active)


def open_work(settings: Settings) -> int | None:
    """The number of jobs and sweeps that continue while a control plane runs: queued jobs, too. 0 and None as of `active_jobs`."""
    return _counted(settings, _count_open)


def has_ray(settings: Settings) -> bool:
    """Whether the data folder has an embedded Ray head."""
    return settings.ray_address is None and Head(settings.data_dir).file.exists()


def end_ray(settings: Settings) -> bool:
    """End the embedded Ray head with everything on it. Returns whether there was one."""
    there = has_ray(settings)
    if settings.ray_address is None:
        Head(settings.data_dir).shut_down()
    return there


async def _control_plane(settings: Settings, port: int | None, echo: Echo, echo_link: Echo) -> int:
    stop = _signals()
    own = parse(settings.database).get_backend_name() == "sqlite"  # processes of an earlier version may use PostgreSQL
    cluster = Cluster(settings)
    await upgrade(settings.database, existing=own)
    store, wake = Store(settings.database), asyncio.Event()
    app, authenticator = _app(settings, store, wake)
    listener = listen(settings.host, settings.port if port is None else port, exactly=port is not None)
    me = pidfile.Control.of_this_process(url_of(listener), authenticator.token_path if authenticator else None)
    try:
        async with (
            serving(app, listener) as server,
            _dispatching(Dispatcher(store, settings, cluster, wake)) as dispatcher,
        ):
            pidfile.write(settings.data_dir, me)
            echo(f"Shardyard runs at {_address(listener)}. Stop it with Ctrl-C, or: shardyard down")
            if authenticator:
                echo_link(sign_in_link(me.url, authenticator.keys.code(os.geteuid())))
            await asyncio.wait([stop, server, dispatcher], return_when=asyncio.FIRST_COMPLETED)
            broken = [task for task in (server, dispatcher) if task.done()]
        pidfile.remove(settings.data_dir, me)
        await _leave_cluster(settings, store, cluster, echo)
        return 1 if broken else 0
    finally:
        pidfile.remove(settings.data_dir, me)
        await store.close()


def _app(settings: Settings, store: Store, wake: asyncio.Event | None = None) -> tuple[FastAPI, Authenticator | None]:
    """The app. Reads or makes the token that it requires."""
    app = create_app(settings, store, wake)
    authenticator: Authenticator | None = app.state.context.authenticator
    if authenticator:
        authenticator.load()
    return app, authenticator


async def _api(settings: Settings, port: int | None, echo: Echo) -> int:
    stop = _signals()
    async with _opened(settings) as store:
        app, authenticator = _app(settings, store)
        listener = listen(settings.host, settings.port if port is None else port, exactly=True)
        async with serving(app, listener) as server:
            echo(f"The API listens at {_address(listener)}.")
            if authenticator and authenticator.token_path:
                echo(f"Its access token is in {authenticator.token_path}.")
            await asyncio.wait([stop, server], return_when=asyncio.FIRST_COMPLETED)
            return int(server.done())


def _address(listener: socket.socket) -> str:
    """The listener's address for a reader's eyes."""
    return url_of(listener) + (" and at this machine's other addresses" if is_on_all(listener) else "")


async def _dispatcher(settings: Settings, echo: Echo) -> int:
    stop, cluster = _signals(), Cluster(settings)
    async with _opened(settings) as store:
        async with _dispatching(Dispatcher(store, settings, cluster)) as dispatcher:
            echo("The dispatcher runs.")
            await asyncio.wait([stop, dispatcher], return_when=asyncio.FIRST_COMPLETED)
            broken = dispatcher.done()
        await _disconnect(cluster)
    return int(broken)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    """The settings' database. Raises DatabaseError if an operator must act first; a database that does not answer may come back."""
    store = Store(settings.database)
    try:
        with suppress(DatabaseUnreachable, DatabaseBusy):
            await store.check()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _dispatching(dispatcher: Dispatcher) -> AsyncIterator[asyncio.Task[None]]:
    """Run the dispatcher while the body runs. Its task ends early only when it fails."""
    task = asyncio.create_task(dispatcher.run(), name="dispatcher")
    try:
        yield task
    finally:
        task.cancel()
        [error] = await asyncio.gather(task, return_exceptions=True)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("the dispatcher failed", exc_info=error)


async def _leave_cluster(settings: Settings, store: Store, cluster: Cluster, echo: Echo) -> None:
    """End the embedded Ray head if no job is active. Otherwise the head and the gangs on it continue."""
    active = await _count_active(store)
    if active or settings.ray_address is not None:
        await _disconnect(cluster)
    if active:
        jobs_continue = "1 job continues" if active == 1 else f"{active} jobs continue"
        echo(f"{jobs_continue} without the control plane. Manage them again with: shardyard up")
    elif settings.ray_address is None:
        await _disconnect(cluster)
        await asyncio.to_thread(end_ray, settings)
        echo("Stopped, and Ray with it.")


async def _disconnect(cluster: Cluster) -> None:
    try:
        await cluster.disconnect()
    except ClusterError as error:
        log.warning("Disconnecting from Ray failed: %s", error)


def _counted(settings: Settings, count: Callable[[Store], Awaitable[int]]) -> int | None:
    """What `count` returns; 0 if there is no database yet, None if it cannot be read."""
    url = parse(settings.database)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return 0

    async def read() -> int | None:
        store = Store(settings.database)
        try:
            return await count(store)
        except (DatabaseMissing, SchemaMissing):
            return 0
        except DatabaseError:  # such as one that an earlier version has migrated
            return None
        finally:
            await store.close()

    return asyncio.run(read())


async def _count_active(store: Store) -> int:
    return await jobs.count(store, HOLDING)


async def _count_open(store: Store) -> int:
    return await jobs.count(store, _OPEN) + await sweeps.count_open(store)


def _signals() -> "asyncio.Future[None]":
    """A future that the first SIGINT, SIGTERM or SIGHUP completes; the second signal has its usual effect.

    SIGHUP, as of a closed terminal, is left as it is where it is ignored (`nohup`).
    """
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def ring() -> None:
        if not stop.done():
            stop.set_result(None)
        for number in awaited:
            loop.remove_signal_handler(number)

    def hang_up() -> None:
        silence()
        ring()

    awaited = {signal.SIGINT: ring, signal.SIGTERM: ring}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        awaited[signal.SIGHUP] = hang_up
    for number, handler in awaited.items():
        loop.add_signal_handler(number, handler)
    return stop


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger(__name__.partition(".")[0]).setLevel(logging.INFO)
