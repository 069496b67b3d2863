"""The command table, and the errors that end a command."""

import io
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer
from typer.exceptions import TyperException

from ...service.errors import ShardyardError
from ...service.schemas.problem import FieldError
from ...version import __version__
from ..client import ApiError
from ..errors import InvalidDocument
from .commands import (
    access,
    advise,
    artifacts,
    chaos,
    checkpoints,
    clone,
    cluster,
    code,
    collectives,
    compare,
    completion,
    curves,
    dev,
    dry_run,
    edit,
    exec_,
    history,
    init,
    jobs,
    life,
    logs,
    metrics,
    models,
    nodes,
    port_forward,
    profile,
    ranks,
    registry,
    run_watch,
    sample,
    secrets,
    submit,
    sweeps,
    top,
    trace,
    up_down,
    verify,
)
from .exit_codes import ExitCode, ProgramEnded, format_exit_codes
from .printed_error import print_error
from .terminal.screen import Screen

app = typer.Typer(
    name="shardyard",
    help="Distributed training jobs on Ray.",
    epilog=format_exit_codes(),
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PANELS = {
    "Train": (
        init.init,
        run_watch.run,
        submit.submit,
        dry_run.dry_run,
        advise.advise,
        verify.verify,
        run_watch.watch,
        jobs.pause,
        jobs.resume,
        jobs.cancel,
        jobs.reshard,
        edit.edit,
        clone.clone,
        life.retry,
        life.delete,
        life.undelete,
    ),
    "Read": (
        *(
            top.top,
            jobs.list_,
            sweeps.sweeps,
            jobs.show,
            history.timeline,
            history.incidents,
            logs.logs,
            curves.curves,
            metrics.metrics,
            artifacts.artifacts,
            compare.compare,
        ),
        *(
            ranks.ranks,
            ranks.resources,
            trace.trace,
            profile.profile,
            checkpoints.checkpoints,
            code.code,
            nodes.nodes,
            cluster.queue,
            cluster.usage,
            collectives.collectives,
            secrets.secrets,
            jobs.schema,
        ),
    ),
    "Faults": (chaos.chaos,),
    "Ranks": (dev.dev, dev.attach, exec_.exec_, port_forward.port_forward),
    "Models": (registry.models, sample.sample, models.export),
    "Control plane": (
        up_down.up,
        up_down.down,
        access.open_,
        access.token,
        up_down.api,
        up_down.dispatcher,
        up_down.migrate,
    ),
    "Shell": (completion.completion,),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(_command.__name__.strip("_").replace("_", "-"), rich_help_panel=_panel)(_command)


@app.callback()
def _shardyard(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Distributed training jobs on Ray."""
    if version:
        print(__version__)
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    completion.prepare()
    if isinstance(sys.stdout, io.TextIOWrapper):  # letters that its encoding lacks are written out, as on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    strange = next((text for text in arguments if not _is_text(text)), None)
    if strange is not None:
        return print_error("invalid_request", f"{strange!a} is not text in UTF-8.", [], as_json=as_json)
    try:
        code = app(args=list(arguments), prog_name="shardyard", standalone_mode=not as_json)
    except ProgramEnded as ended:
        return ended.status
    except TyperException as error:  # a wrong command line, which typer prints itself unless it is for a program
        return print_error("invalid_request", error.format_message(), [], as_json=as_json)
    except typer.Abort:
        return ExitCode.ERROR
    except SystemExit as exit_:
        return _code(exit_.code, arguments)
    except ApiError as error:
        return print_error(error.code, error.detail, error.errors, as_json=as_json)
    except ShardyardError as error:
        return print_error(error.code, error.message, _findings(error), as_json=as_json)
    except BrokenPipeError:  # the reader of our output had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    except OSError as error:  # a full disk, a folder without permission
        where = f"{error.filename}: " if error.filename else ""
        return print_error("os_error", f"{where}{error.strerror or error}.", [], as_json=as_json)
    return code if isinstance(code, int) else 0


def _is_text(argument: str) -> bool:
    """Whether the argument is valid UTF-8; other bytes arrive as surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in argument


def _code(code: str | int | None, arguments: Sequence[str]) -> int:
    """The exit code: 1 for a wrong command line, where click says 2. Prints which help to read."""
    number = code if isinstance(code, int) else int(code is not None)
    if number != 2:
        return number
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    named = next((argument for argument in arguments if argument in known), None)
    Screen().hint(f"See how with: {' '.join(filter(None, ['shardyard', named, '--help']))}")
    return ExitCode.ERROR


def _findings(error: ShardyardError) -> list[FieldError]:
    if isinstance(error, InvalidDocument):
        return error.errors
    return [FieldError(field=error.field, message=error.message, remedy=error.remedy)]
