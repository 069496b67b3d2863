"""Shell completion: commands, options, and names of jobs if a control plane answers at once. It prints no errors.

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
#: The user waits at the prompt.
_PATIENCE_S = 1.0
_MOST = 50


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")],
) -> None:
    """Print a shell's completion script: source it, or place it in the shell's completion folder."""
    print(get_completion_script(prog_name="shardyard", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Register completion, if a shell asks for it."""
    if VARIABLE in os.environ:
        get_completion_inspect_parameters()  # makes the shells' forms of question known


def job_names(incomplete: str) -> list[str]:
    """Names of jobs with this prefix, newest first, or ids for the prefix of an id. Empty without a control plane."""
    try:
        with Client(timeout_s=_PATIENCE_S, tries=1) as client:
            found = client.jobs(text=incomplete or None, limit=_MOST).items
    except (ApiError, ShardyardError, OSError, ValueError):
        return []
    words = [job.id if incomplete.startswith("job-") else job.name for job in found]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
