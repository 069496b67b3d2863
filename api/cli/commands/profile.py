"""`shardyard profile`: what a running rank executes, as its stacks or as samples, downloaded as a file."""

import tempfile
import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from ....service.schemas.profile import Profile
from ....workers.messages.profile_request import MOST_SECONDS
from ...client import Client
from ..exit_codes import ExitCode
from ..options import JobName, Json, Url
from ..terminal.screen import Screen

#: Seconds between two looks at a profile.
_POLL_S: Final = 0.5
#: Seconds to wait for a profile beyond its own: the job may be repaired meanwhile.
_PATIENCE_S: Final = 700.0


class ProfileKind(StrEnum):
    stacks = "stacks"
    cpu = "cpu"
    operators = "operators"
    memory = "memory"


_VIEWERS: Final = {
    ProfileKind.cpu: "https://www.speedscope.app",
    ProfileKind.operators: "https://ui.perfetto.dev",
    ProfileKind.memory: "https://pytorch.org/memory_viz",
}


def profile(
    job: JobName,
    rank: Annotated[int, typer.Option("--rank", min=0, help="The rank to profile.")] = 0,
    kind: Annotated[
        ProfileKind,
        typer.Option(
            "--kind",
            help="stacks: where all threads are now. cpu: where the time goes. operators: torch's operators, in whole steps; "
            "memory: allocations on a GPU.",
        ),
    ] = ProfileKind.stacks,
    seconds: Annotated[
        int, typer.Option("--seconds", min=1, max=MOST_SECONDS, help="Its duration; without effect on stacks.")
    ] = 10,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print the stacks of a running rank, or record what it runs into a file."""
    screen = Screen()
    with Client(url) as client:
        asked = client.profile(job, rank=rank, kind=kind.value, seconds=seconds)
        if kind != ProfileKind.stacks:
            screen.say(f"Recording rank {rank} of {asked.job} for {seconds} s.")
        ended = _ended(client, asked)
        if json:
            screen.json(ended)
        elif ended.file is None:
            screen.error(f"Rank {rank} was not profiled: {ended.message or 'no answer yet'}.")
        else:
            _show(screen, client, ended)
    if ended.state != "done":
        raise typer.Exit(ExitCode.ERROR)


def _ended(client: Client, asked: Profile) -> Profile:
    """The profile once it has ended, or as it is when patience is."""
    deadline = time.monotonic() + asked.seconds + _PATIENCE_S
    found = asked
    while found.state == "open" and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        newest = client.retry_unreachable(partial(client.profiles, asked.job, limit=100)).items
        found = next((one for one in newest if one.id == asked.id), found)
    return found


def _show(screen: Screen, client: Client, ended: Profile) -> None:
    """Print stacks; of others where their file is, and what opens it."""
    assert ended.file is not None
    if ended.kind == "stacks":
        with tempfile.TemporaryDirectory() as folder:
            for line in (
                client.download_artifact(ended.job, ended.file, folder).read_text(encoding="utf-8").splitlines()
            ):
                screen.line(line)
        return
    screen.line(str(client.download_artifact(ended.job, ended.file, Path(Path(ended.file).name))))
    screen.hint(f"Open it on {_VIEWERS[ProfileKind(ended.kind)]}, which reads it in the browser.")
