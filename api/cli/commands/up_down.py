"""Commands that run the control plane. Only the process that becomes the server imports the server's code."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import psutil
import typer

from ....service.data_folder import make
from ....service.errors import ShardyardError
from ....service.settings import Settings
from ... import pidfile
from ...access_token import sign_in_link
from ...client import Client
from ...errors import AlreadyRunning, DidNotStart, NotStopped
from ..options import Json
from ..run_lock import RunLock
from ..terminal.screen import Screen

#: Seconds for a detached control plane to be ready, Ray's start included.
_READY_S = 120.0
#: Seconds between asking a control plane to end and ending it.
_TERM_S = 30.0

Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="Port. Default: 8400, or the next free one.")
]


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
    port: Port = None,
    json: Json = False,
) -> None:
    """Start the data folder's control plane: API, dispatcher, and Ray unless SHARDYARD_RAY_ADDRESS is set."""
    if json and not detach:
        raise typer.BadParameter("--json goes with --detach.")
    screen = Screen()
    settings = Settings()
    if detach:
        found, started = _start(settings, port)
        if not started:
            raise AlreadyRunning(found.url, found.pid, settings.data_dir)
        if json:
            screen.json({"url": found.url, "pid": found.pid})
        else:
            screen.out.print(f"The control plane runs at {found.url} (pid {found.pid}); its log is {_log(settings)}.")
            screen.link(_sign_in(found.url))
            screen.hint("Stop it with: shardyard down")
        return
    from ...daemon.control_plane import run_control_plane

    raise typer.Exit(run_control_plane(settings, port, screen.say, screen.link))


def down(
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", help="Stop even if jobs are active.")] = False,
) -> None:
    """Stop the control plane, and the Ray head that it started with everything on it."""
    from ...daemon.control_plane import active_jobs, has_ray

    screen = Screen()
    settings = Settings()
    active = active_jobs(settings)
    if active != 0 and not yes and has_ray(settings):  # on another Ray cluster they continue
        _confirm(screen, active)
    found = pidfile.read(settings.data_dir)
    stopped = found is not None and _stop(found)
    ended = _end_ray(settings)
    if ended is None and not stopped:
        raise NotStopped(settings.data_dir)
    if stopped or ended:
        screen.out.print(
            "Stopped." + (f" {active} active jobs continue after the next: shardyard up" if active else "")
        )
    else:
        screen.out.print("Nothing was running.")


def api(
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port. Default: 8400.")] = None,
) -> None:
    """Run the API alone (the dispatcher runs elsewhere)."""
    from ...daemon.control_plane import run_api

    raise typer.Exit(run_api(Settings(), port, Screen().say))


def dispatcher() -> None:
    """Run the dispatcher alone (the API runs elsewhere)."""
    from ...daemon.control_plane import run_dispatcher

    raise typer.Exit(run_dispatcher(Settings(), Screen().say))


def migrate() -> None:
    """Migrate the database to this version's schema."""
    from ...daemon import control_plane as process

    settings = Settings()
    process.migrate(settings)
    Screen().out.print(f"The schema of {settings.database_shown} is up to date.")


class Borrowed:
    """The data folder's control plane for one `run`. One is started if none runs.

    The one that was started is stopped with its Ray afterwards, unless it is kept, another `run` uses it, or it has other work by then.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._settings = Settings()
        self._kept = False
        self._found: pidfile.Control | None = None
        #: Whether this command has started it.
        self.started = False

    def keep(self) -> None:
        """Keep the control plane running after the command."""
        self._kept = True

    def __enter__(self) -> Self:
        self._lock = RunLock(self._settings.data_dir)
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def _begin(self) -> None:
        if not self._lock.share(wait=False):
            self._screen.say("Waiting until another `shardyard run` has stopped its control plane …")
            self._lock.share(wait=True)
        self._found = pidfile.read(self._settings.data_dir)
        if self._found is not None:
            return
        self._screen.say(f"Starting a control plane in {self._settings.data_dir} …")
        began = time.monotonic()
        self._found, self.started = _start(self._settings, None)
        self._screen.say(f"It runs at {self._found.url} after {time.monotonic() - began:.1f} s.")
        self._screen.link(_sign_in(self._found.url))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        try:
            if self.started and self._found is not None:
                self._stop_unless_used(self._found)
        finally:
            self._lock.release()

    def _stop_unless_used(self, found: pidfile.Control) -> None:
        why = self._reason_to_stay()
        if why is not None:
            self._screen.say(f"{why}: the control plane stays at {found.url}.")
            self._screen.hint("See its jobs with: shardyard list\nStop it with: shardyard down")
            return
        _stop(found)
        _end_ray(self._settings)

    def _reason_to_stay(self) -> str | None:
        from ...daemon.control_plane import open_work

        if self._kept:
            return "The job has not ended"
        if not self._lock.alone():
            return "Another `shardyard run` uses it"
        work = open_work(self._settings)
        if work is None:
            return "The database cannot be read"
        return "Jobs run or wait" if work else None


def _start(settings: Settings, port: int | None) -> tuple[pidfile.Control, bool]:
    """Start a control plane in the background, and wait until it is ready.

    Returns it, and whether it is the one that was started here: another process may have been first. Raises `AlreadyRunning`,
    `DidNotStart`.
    """
    running = pidfile.read(settings.data_dir)
    if running is not None:
        raise AlreadyRunning(running.url, running.pid, settings.data_dir)
    make(settings.data_dir)
    command = [
        sys.executable,
        "-P",  # a tokenize.py of the folder is no module of ours
        "-m",
        __package__.removesuffix(".commands"),
        "up",
        *([] if port is None else ["--port", str(port)]),
    ]
    with os.fdopen(os.open(_log(settings), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )
    try:
        found = _await_ready(settings, process)
    except BaseException:
        process.terminate()
        raise
    return found, found.pid == process.pid


def _await_ready(settings: Settings, process: "subprocess.Popen[bytes]") -> pidfile.Control:
    """The control plane of this process once it is ready; that of another one if this has ended because the other one was first."""
    began = time.monotonic()
    while time.monotonic() - began < _READY_S:
        ended = process.poll() is not None
        if ended and not pidfile.Lock.is_taken(settings.data_dir):
            raise DidNotStart(f"The control plane ended with code {process.returncode}.", _tail(_log(settings)))
        found = pidfile.read(settings.data_dir)
        if found is not None and (ended or found.pid == process.pid) and _ready(found.url):
            return found
        time.sleep(0.1)
    raise DidNotStart(f"The control plane was not ready within {_READY_S:.0f} s.", _tail(_log(settings)))


def _ready(url: str) -> bool:
    with Client(url) as client:
        return client.alive() and client.readiness().status == "ready"


def _sign_in(url: str) -> str:
    with Client(url) as client:
        return sign_in_link(url, client.sign_in_code().code)


def _stop(found: pidfile.Control) -> bool:
    """Stop a control plane's process, SIGTERM first. Returns whether there was one."""
    process = found.process
    if process is None:
        return False
    try:
        process.terminate()
        if not _ends(found, _TERM_S):
            process.kill()
            _ends(found, 5.0)
    except psutil.NoSuchProcess:
        pass
    return True


def _ends(found: pidfile.Control, seconds: float) -> bool:
    """Whether its process ends in time. One that is only not reaped yet has ended: that is its parent's part, which may take long."""
    last = time.monotonic() + seconds
    while found.process is not None and time.monotonic() < last:
        time.sleep(0.05)
    return found.process is None


def _end_ray(settings: Settings) -> bool | None:
    """End the embedded Ray head, unless another control plane has it. Returns whether there was one; None if another one has it."""
    from ...daemon.control_plane import end_ray

    if not settings.data_dir.is_dir():
        return False
    lock = pidfile.Lock(settings.data_dir)
    try:
        return end_ray(settings) if lock.take() else None
    finally:
        lock.release()


def _confirm(screen: Screen, active: int | None) -> None:
    jobs = "1 job is active" if active == 1 else f"{active} jobs are active"
    if active is None:
        jobs = "The database cannot be read, so jobs may be active"
    message = f"{jobs}; stopping Ray ends their processes. They resume from their checkpoints after the next `up`."
    if not sys.stdin.isatty():
        raise ShardyardError(message, remedy="Stop all the same with: shardyard down --yes")
    screen.say(message)
    if not typer.confirm("Stop all the same?"):
        raise typer.Exit(1)


def _log(settings: Settings) -> Path:
    return settings.data_dir / "control.log"


def _tail(path: Path, lines: int = 20) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
