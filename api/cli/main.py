"""The command table and the printing of errors. Every error ends with a command to run next."""

import io
import json
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


_NEXT = {
    "sweep_not_found": "See which sweeps there are with: shardyard sweeps",
    "job_not_found": "See which jobs there are with: shardyard list",
    "model_not_found": "See which models there are with: shardyard models",
    "node_not_found": "See which nodes there are with: shardyard nodes",
    "job_deleted": "See which jobs can be restored with: shardyard undelete",
    "job_not_ended": "See its state with: shardyard show JOB",
    "job_ended": "See how it ended with: shardyard show JOB",
    "artifact_not_found": "See which files there are with: shardyard artifacts JOB",
    "trace_not_found": "See which traces there are with: shardyard trace JOB --list",
    "trace_open": "See its progress with: shardyard trace JOB --list",
    "job_not_running": "See its state with: shardyard show JOB",
    "profile_rank_unknown": "See its ranks with: shardyard show JOB",
    "too_many_profiles": "See the files of those that ended with: shardyard artifacts JOB",
    "port_closed": "See what it prints with: shardyard logs JOB",
    "rank_unreachable": "See the job's state with: shardyard show JOB",
    "exec_open": "See its output with: shardyard logs JOB --rank R",
    "invalid_fault": "See which faults there are with: shardyard chaos --help",
    "invalid_spec": "See the schema of a spec with: shardyard schema",
    "too_many_ranks": "See the cluster's devices with: shardyard nodes",
    "idempotency_conflict": "Submit it under a new key with: shardyard submit SPEC",
    "unauthenticated": "See your token with: shardyard token  (SHARDYARD_TOKEN, SHARDYARD_TOKEN_PATH)",
    "not_shardyard": "Use another address with: shardyard --help  (--url, SHARDYARD_URL)",
}


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    completion.prepare()
    if isinstance(sys.stdout, io.TextIOWrapper):  # letters that its encoding lacks are written out, as on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    strange = next((text for text in arguments if not _is_text(text)), None)
    if strange is not None:
        return _print_error("invalid_request", f"{strange!a} is not text in UTF-8.", [], as_json=as_json)
    try:
        code = app(args=list(arguments), prog_name="shardyard", standalone_mode=not as_json)
    except ProgramEnded as ended:
        return ended.status
    except TyperException as error:  # a wrong command line, which typer prints itself unless it is for a program
        return _print_error("invalid_request", error.format_message(), [], as_json=as_json)
    except typer.Abort:
        return ExitCode.ERROR
    except SystemExit as exit_:
        return _code(exit_.code, arguments)
    except ApiError as error:
        return _print_error(error.code, error.detail, error.errors, as_json=as_json)
    except ShardyardError as error:
        return _print_error(error.code, error.message, _findings(error), as_json=as_json)
    except BrokenPipeError:  # the reader of our output had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    except OSError as error:  # a full disk, a folder without permission
        where = f"{error.filename}: " if error.filename else ""
        return _print_error("os_error", f"{where}{error.strerror or error}.", [], as_json=as_json)
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


def _print_error(code: str, detail: str, errors: Sequence[FieldError], *, as_json: bool) -> int:
    """Print an error to stderr, for programs as one line of JSON."""
    screen = Screen()
    if as_json:
        found = {"code": code, "detail": detail, "errors": [finding.model_dump() for finding in errors]}
        sys.stderr.write(json.dumps(found) + "\n")
        return ExitCode.ERROR
    screen.error(detail, errors, code)
    if code in _NEXT:
        screen.hint(_NEXT[code])
    elif not any("shardyard " in (finding.remedy or "") for finding in errors):
        screen.hint("See how with: shardyard --help")
    return ExitCode.ERROR
