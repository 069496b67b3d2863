"""Completion in a shell: commands and options, and the names of jobs where a control plane answers at once. It never complains.

The script asks the command line itself, through the variable `_SHARDYARD_COMPLETE`.
"""

import os
from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script
from typer.completion import get_completion_inspect_parameters

from ....service.errors import ShardyardError
from ...client import ApiError, Client

VARIABLE = "_SHARDYARD_COMPLETE"
#: Somebody waits with a finger on the key.
_PATIENCE_S = 1.0
_MOST = 50


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell to write it for.")],
) -> None:
    """Print the completion script of a shell: source it, or put it where the shell looks for such."""
    print(get_completion_script(prog_name="shardyard", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Let the command line answer a shell, where one asks."""
    if VARIABLE in os.environ:
        get_completion_inspect_parameters()  # makes the shells' forms of question known


def job_names(incomplete: str) -> list[str]:
    """Names of jobs that begin so, newest first; ids where an id is begun. Nothing where nobody answers."""
    try:
        with Client(timeout_s=_PATIENCE_S, tries=1) as client:
            found = client.jobs(text=incomplete or None, limit=_MOST).items
    except (ApiError, ShardyardError, OSError, ValueError):
        return []
    words = [job.id if incomplete.startswith("job-") else job.name for job in found]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
