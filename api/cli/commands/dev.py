"""`shardyard dev` and `shardyard attach`: a shell on the cluster, or Jupyter, in the environment and with the code of a job."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

import typer

from ....service.schemas.problem import FieldError
from ....workers.program import idle_end
from ...client import FINAL, ApiError, Client, JobHandle
from ...client.streams import Streams
from ...client.transport import GONE
from ...errors import InvalidParameter
from ..exit_codes import ExitCode, ProgramEnded, of_state
from ..options import JobName, Url
from ..terminal import remote_terminal
from ..terminal.remote_terminal import Ended
from ..terminal.screen import Screen, runs_on
from ..terminal.time_argument import duration
from .port_forward import Forward, Ports

#: Seconds between two looks at a job that waits.
POLL_S: Final = 0.5
_JUPYTER: Final = "shardyard.workers.program.jupyter_server"
#: States of a session from which there is no way back.
_ENDING: Final = ("cancelling", "stopping")


def dev(  # noqa: PLR0913, PLR0917 - an option each
    ranks: Annotated[int, typer.Option("--ranks", min=1, help="Number of ranks on CPUs, all on one node.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="Number of GPUs, all on one node; 0: CPUs.")] = 0,
    env: Annotated[
        str | None,
        typer.Option(
            "--env", metavar="FILE", help="Packages, by a file in --code: .txt, pyproject.toml, uv.lock, conda's .yml."
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Name of an image that nodes have, as `shardyard nodes` lists them.")
    ] = None,
    code: Annotated[
        str | None, typer.Option("--code", metavar="FOLDER", help="Folder to upload; the shell starts in it.")
    ] = None,
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="Idle time after which it ends: 90s, 30m, 8h.")
    ] = "30m",
    jupyter: Annotated[bool, typer.Option("--jupyter", help="Serve the environment's Jupyter, not a shell.")] = False,
    name: Annotated[str, typer.Option("--name", help="The job's name. A second session has another one.")] = "dev",
    stop: Annotated[bool, typer.Option("--stop", help="End the session.")] = False,
    url: Url = None,
) -> None:
    """Open a shell on the cluster: in a job that waits, and that ends when it is idle. The same command attaches again.

    Ctrl-] detaches, and what runs in the shell continues. Needs SHARDYARD_EXEC=true on the server.
    """
    screen, idle_s = Screen(), duration(idle)
    if not stop and not jupyter:
        remote_terminal.refuse_unless_terminal()
    with Client(url) as client:
        job = _open(client, name)
        if stop:
            _stop(screen, client, job, name)
            return
        if job is None:
            count, serves = gpus or ranks, ["-m", _JUPYTER, "serve"] if jupyter else []
            spec = spec_of(name, count, on_gpus=gpus > 0, idle_s=idle_s, code=code, env=env, image=image, serves=serves)
            job = _begun(screen, client, spec)
            screen.say(f"{job.id} is your session, and ends when it is idle for {idle}.")
        else:
            screen.say(f"{job.id} is your session. --stop ends it; the other options count for a new one.")
        if jupyter:
            _refuse_without_jupyter(job)
        _wait_until_running(screen, client, job)
    again = f"shardyard dev --name {name}"
    if jupyter:
        _serve_jupyter(screen, url, job.id, again)
        return
    raise ProgramEnded(_shown(screen, url, job.id, 0, again=again, end=f"{again} --stop"))


def attach(
    job: JobName,
    rank: Annotated[int, typer.Option("--rank", min=0, help="The rank at which the shell is.")] = 0,
    url: Url = None,
) -> None:
    """Open the shell at a running rank that stays until the job ends, or attach to it again.

    It is in the rank's folder and has its variables. Ctrl-] detaches. Needs SHARDYARD_EXEC=true on the server.
    """
    again = f"shardyard attach {job}" + (f" --rank {rank}" if rank else "")
    raise ProgramEnded(_shown(Screen(), url, job, rank, again=again, end="exit, in the shell"))


def spec_of(
    name: str,
    ranks: int,
    *,
    on_gpus: bool,
    idle_s: float,
    code: str | None,
    env: str | None,
    image: str | None = None,
    serves: Sequence[str] = (),
) -> dict[str, Any]:
    """The spec of a job that waits until it is idle. Its ranks share a node, on which they see each other's use.

    `serves`: arguments of the Python that rank 0 runs meanwhile.
    """
    return {
        "name": name,
        "command": ["python", "-m", idle_end.MODULE, f"{idle_s:g}", *serves],
        "ranks": ranks,
        "ranks_per_node": ranks,
        "resources": {"device": "cuda" if on_gpus else "cpu"},
        **({} if code is None else {"code": {"dir": code}}),
        **_environment(env, image),
    }


def _environment(file: str | None, image: str | None) -> dict[str, Any]:
    """The key `env` of a spec: packages by a file of requirements, or of conda, and an image."""
    if file is None:
        packages: dict[str, Any] = {}
    else:
        packages = {"conda": file} if file.endswith((".yml", ".yaml")) else {"python": file, "inherit": True}
    asked = packages | ({} if image is None else {"image": image})
    return {"env": asked} if asked else {}


def _open(client: Client, name: str) -> JobHandle | None:
    """The newest job of this name, if it has not ended and does not end. Raises InvalidParameter for one that is no session."""
    try:
        job = client.job(name)
    except ApiError as error:
        if error.code not in GONE:
            raise
        return None
    if job.state in FINAL or job.state in _ENDING:
        return None
    if idle_end.MODULE not in job.spec.get("command", ()):
        remedy = f"Name another session with --name. A shell at the job: shardyard attach {job.id}"
        raise InvalidParameter(f"{job.id} has the name {name}, and is no session.", field="--name", remedy=remedy)
    return job


def _refuse_unless_allowed(client: Client) -> None:
    """Raises ApiError before a job takes devices for a session that the server would not connect."""
    if not client.server().terminals:
        finding = FieldError(
            message="It connects no terminals.",
            remedy="Its operator sets SHARDYARD_EXEC=true for the API and the dispatchers, and leaves the access token on.",
        )
        raise ApiError("exec_disabled", "Sessions are not enabled on this server.", None, [finding])


def _begun(screen: Screen, client: Client, spec: dict[str, Any]) -> JobHandle:
    """A new session."""
    _refuse_unless_allowed(client)
    job = client.submit(spec, on_upload=screen.uploading)
    screen.warnings(job.warnings)
    return job


def _stop(screen: Screen, client: Client, job: JobHandle | None, name: str) -> None:
    if job is None:
        screen.say(f"No session {name} is open.")
        raise typer.Exit(ExitCode.ERROR)
    client.cancel(job.id)
    screen.say(f"{job.id} ends.")


def _wait_until_running(screen: Screen, client: Client, job: JobHandle) -> None:
    """Wait for the job's program, and say what it waits for. Ctrl-C leaves the job as it is."""
    shown = ""
    with runs_on(screen, f"It still waits. End it with: shardyard cancel {job.id}"):
        while job.state != "running":
            if job.state in FINAL:
                if job.state == "failed":
                    screen.failure(job)
                else:
                    screen.say(f"{job.id} is {job.state}.")
                raise typer.Exit(of_state(job.state))
            if job.state == "paused":
                screen.say(f"{job.id} is paused. Continue it with: shardyard resume {job.id}")
                raise typer.Exit(ExitCode.ERROR)
            if job.state != shown:
                shown = job.state
                screen.say(f"{job.state}" + (f": {job.message}" if job.message else ""))
            time.sleep(POLL_S)
            job = client.retry_unreachable(partial(client.job, job.id))


def _refuse_without_jupyter(job: JobHandle) -> None:
    """Raises InvalidParameter for a session that was opened without --jupyter."""
    if _JUPYTER not in job.spec["command"]:
        remedy = "End it with --stop, or name another session with --name."
        raise InvalidParameter(f"{job.id} serves no Jupyter.", field="--jupyter", remedy=remedy)


def _serve_jupyter(screen: Screen, url: str | None, job: str, again: str) -> None:
    """Forward the port of the session's Jupyter until Ctrl-C. Raises ApiError."""

    async def serve() -> None:
        port, token = await jupyter_address(url, job)
        await Forward(screen, url, job, 0, f"/?token={token}").serve([Ports(0, port)])

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
    screen.hint(f"The session continues. Connect again with: {again} --jupyter. End it with: {again} --stop")


async def jupyter_address(url: str | None, job: str) -> tuple[int, str]:
    """The port and the token of a session's Jupyter, once it has begun. Raises ApiError."""
    command, size = ["python", "-m", _JUPYTER, "show"], {"rows": 24, "columns": 1000, "term": "dumb"}
    printed = b""
    async with Streams(url) as streams, streams.terminal(job, 0, command, keep=False, size=size) as stream:
        while isinstance(message := await stream.receive(), bytes):
            printed += message
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(printed.strip().rpartition(b"\n")[2])
        return int(found["port"]), str(found["token"])
    said = printed.decode(errors="replace").strip()[-500:] or "The session has ended."
    remedy = FieldError(message=said, remedy=f"See what it printed with: shardyard logs {job}")
    raise ApiError("no_jupyter", "Jupyter does not run in the session.", None, [remedy])


def _shown(screen: Screen, url: str | None, job: str, rank: int, *, again: str, end: str) -> int:
    """Show the kept shell of a rank; returns the command's exit code."""
    return report(screen, remote_terminal.connect(url, job, rank, [], keep=True), again, end)


def report(screen: Screen, ended: Ended, again: str, end: str) -> int:
    """Say how the connection ended, and how to go on; returns the command's exit code."""
    if ended.status is not None:
        screen.hint(f"The shell has ended. Open another with: {again}")
        return ended.status
    if ended.how == "replaced":
        screen.say("Another terminal shows this shell now.")
        return ExitCode.SUCCEEDED
    screen.say("Detached. The shell continues." if ended.how == "detached" else "The connection was lost.")
    screen.hint(f"Attach again with: {again}. End it with: {end}")
    return ExitCode.SUCCEEDED if ended.how == "detached" else ExitCode.ERROR
