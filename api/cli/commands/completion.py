"""Shell completion of commands, options and names of jobs.

The script asks the command line itself, through the variable `_SHARDYARD_COMPLETE`.
"""

import os
from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script
from typer.completion import get_completion_inspect_parameters

VARIABLE = "_SHARDYARD_COMPLETE"


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")],
) -> None:
    """Print a shell's completion script: source it, or place it in the shell's completion folder."""
    print(get_completion_script(prog_name="shardyard", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Register completion, if a shell asks for it."""
    if VARIABLE in os.environ:
        get_completion_inspect_parameters()  # makes the shells' forms of question known
