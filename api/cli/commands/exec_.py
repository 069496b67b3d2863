"""`shardyard exec`: a command beside a running rank, with its output and its exit status, or on a terminal."""

import uuid
from typing import Annotated

import typer

from ....service.schemas.exec import Exec
from ....workers.messages.exec_request import MOST_SECONDS, STREAM
from ...client import Client
from ...errors import InvalidParameter
from ..exit_codes import ExitCode, ProgramEnded
from ..options import JobName, Url
from ..terminal import remote_terminal
from ..terminal.screen import Screen


def exec_(
    job: JobName,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...", help="The program and its arguments; with --terminal a shell, if left out."
        ),
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=0, help="The rank beside which it runs.")] = 0,
    seconds: Annotated[
        int, typer.Option("--seconds", min=1, max=MOST_SECONDS, help="Seconds after which it is killed.")
    ] = 60,
    terminal: Annotated[
        bool,
        typer.Option(
            "-t", "--terminal", help="On this terminal, with input. It ends when you do, and has no time limit."
        ),
    ] = False,
    url: Url = None,
) -> None:
    """Run a command in a running rank's folder, with its variables: shardyard exec JOB --rank 3 -- nvidia-smi

    Ends with the command's exit status. Needs SHARDYARD_EXEC=true on the server. Ctrl-C leaves the command to its time limit.
    """
    screen = Screen()
    if terminal:
        ended = remote_terminal.connect(url, job, rank, command or [], keep=False)
        raise ProgramEnded(ExitCode.ERROR if ended.status is None else ended.status)
    if not command:
        raise InvalidParameter(
            "There is no command.", field="COMMAND", remedy="Name one, or open a shell with --terminal."
        )
    with Client(url) as client:
        found = client.job(job)
        asked = client.execute(found.id, command, rank=rank, seconds=seconds, idempotency_key=str(uuid.uuid4()))
        raise ProgramEnded(_follow(screen, client, asked, found.cursor))


def _follow(screen: Screen, client: Client, asked: Exec, cursor: str) -> int:
    """Print the output until the command has ended; returns the exit status."""
    for event in client.events(asked.job, cursor, logs=True, rank=asked.rank):
        if event.kind == "log" and event.data["stream"] == STREAM:
            screen.line(event.data["text"])
        if event.kind == "exec" and event.data["id"] == asked.id:
            if (status := event.data.get("status")) is not None:
                return int(status)
            screen.error(f"The command did not run to its end: {event.data['message']}.")
            return ExitCode.ERROR
    screen.error("The job has ended.")
    return ExitCode.ERROR
