"""Commands that stay with a job: `run`, `watch`. They print what a program prints, as `logs` does.

Ctrl-C leaves a watched job running. In `run` the first one cancels the job and the second leaves it to itself; SIGTERM and SIGHUP act as
the first one.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Self

import typer

from ....service.schemas.job import Job
from ....service.settings import Settings
from ... import pidfile, spec_file
from ...client import FINAL, ApiError, Client, Event, module_plan
from ...errors import InvalidParameter
from ...spec_overrides import with_overrides
from ..end_signals import EndSignals, hangup_awaited
from ..exit_codes import ExitCode, ProgramEnded, of_state
from ..options import JobName, Json, Overrides, SpecPath, Url
from ..terminal import live_view
from ..terminal.event_lines import log_line, remark
from ..terminal.progress import Meter
from ..terminal.screen import Screen, runs_on
from .jobs import ended
from .sample import show
from .up_down import Borrowed

#: Points of the curve that a late watcher is shown.
_CURVE = 120

_Rank = Annotated[
    int | None,
    typer.Option("--rank", min=0, help="Print this rank's log lines. Default for a job that runs a command: rank 0's."),
]
_AllRanks = Annotated[
    bool, typer.Option("--all-ranks", help="Print the log lines of all ranks, each with the number of its rank.")
]


@dataclass(frozen=True)
class PrintedLogs:
    """Which log lines are printed: those of `rank`, or of all ranks. Not `chosen`: only of a job that runs a command."""

    rank: int | None = 0
    chosen: bool = False
    beside: bool = False  # on stderr, since stdout has one JSON document

    @classmethod
    def given(cls, rank: int | None, all_ranks: bool, *, beside: bool = False) -> Self:
        """As the options say. Raises InvalidParameter if they exclude each other."""
        if all_ranks and rank is not None:
            message = "--rank and --all-ranks exclude each other."
            raise InvalidParameter(message, field="--all-ranks", remedy="Leave one of them out.")
        return cls(None if all_ranks else rank or 0, all_ranks or rank is not None, beside)

    def of(self, job: Job) -> bool:
        """Whether any of this job's lines are printed."""
        return self.chosen or "command" in job.spec


def watch(job: JobName, rank: _Rank = None, all_ranks: _AllRanks = False, url: Url = None, json: Json = False) -> None:
    """Watch a job until it ends, with what its program prints; exit with its result. Ctrl-C leaves it running."""
    screen, logs = Screen(), PrintedLogs.given(rank, all_ranks)
    with Client(url) as client:
        found = client.job(job)
        with runs_on(screen, f"The job keeps running. Watch it again with: shardyard watch {found.id}"):
            follower = Follower(client, screen, logs)
            ended_job = _print_events(client, screen, found, logs) if json else follower.follow(found)
    if not json:
        ended(screen, ended_job)
    raise typer.Exit(of_state(ended_job.state))


def run(
    spec: SpecPath,
    overrides: Overrides = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Run the ranks on this machine: no control plane, no Ray, and nothing is stored."),
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option("--sample", metavar="TEXT", help="Print what the trained model writes after this text."),
    ] = None,
    rank: _Rank = None,
    all_ranks: _AllRanks = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Run a spec to its end, and print what its program prints. Starts a control plane if none runs.

    Stops the control plane that it has started, unless another `run` uses it, or other jobs run or wait in it.

    Ctrl-C cancels the job; a second Ctrl-C leaves it to itself. SIGTERM and SIGHUP, as of a CI runner or a closed terminal, cancel it too.
    """
    screen, logs = Screen(), PrintedLogs.given(rank, all_ranks, beside=json)
    given = with_overrides(spec_file.read(spec), overrides or [])
    if local:
        _refuse_of_a_server(
            {"--sample": sample, "--url": url, "--json": json or None, "--rank": rank, "--all-ranks": all_ranks or None}
        )
        from .local_run import run_local  # which imports torch

        raise ProgramEnded(run_local(given.document, screen))
    with ExitStack() as stack:
        signals = stack.enter_context(EndSignals())
        client, borrowed = _client_for_run(screen, stack, url, given.document)
        stack.callback(signals.disregard)
        if module_plan.plans(given.document, None):
            screen.planning()
        submitted = client.submit(given, on_upload=screen.uploading, on_unplanned=screen.unplanned)
        job = _run_to_the_end(Follower(client, screen, logs), submitted, borrowed, signals)
        if json:
            screen.json(job)
        else:
            if sample is not None and job.state == "succeeded":
                show(screen, job, sample)
            ended(screen, job, alone=borrowed is not None and borrowed.started)
    raise typer.Exit(of_state(job.state))


class Follower:
    """Follows one job on the screen, across lost connections and interrupts."""

    def __init__(self, client: Client, screen: Screen, logs: PrintedLogs) -> None:
        self.client = client
        self.screen = screen
        self._logs = logs
        self._cursor: str | None = None

    def follow(self, job: Job) -> Job:
        """Show the job until it ends; returns the ended job."""
        if job.state in FINAL:
            return job
        steps = job.progress.steps if job.progress else int(job.spec.get("train", {}).get("steps", 0))
        logs = self._logs.of(job)
        rank = self._logs.rank if logs else None
        with live_view.meter(self.screen.err, steps, job.state) as meter:
            if self._cursor is None:
                self._begin(meter, job)
            lost = _Lost(meter)
            for event in self.client.events(job.id, self._cursor, logs=logs, rank=rank, on_lost=lost):
                self._cursor = event.cursor
                lost.over = False
                if event.kind == "log":
                    self._print(meter, event.data)
                else:
                    _show(meter, event)
        return self.client.job(job.id)

    def _begin(self, meter: Meter, job: Job) -> None:
        """Print what happened before the watch started."""
        self._cursor = job.cursor
        meter.note(f"{job.name} is {job.state}" + (f": {job.message}" if job.message else ""))
        if self._logs.of(job) and not self._logs.chosen and job.world_size > 1:
            meter.note("Rank 0's log lines follow; --all-ranks prints those of all ranks.")
        if job.progress:
            meter.before(self.client.metrics(job.id, max_points=_CURVE).points)
            meter.step(job.progress.model_dump())

    def _print(self, meter: Meter, line: dict[str, Any]) -> None:
        text = log_line(line["rank"], line["text"], self._logs.rank)
        if self._logs.beside:
            meter.note(text)
        else:
            self.screen.line(text)


class _Lost:
    """Prints once per lost connection that the control plane cannot be reached."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.over = False

    def __call__(self, error: ApiError) -> None:
        if not self.over:
            self.over = True
            self._meter.note(f"{error.detail} Trying again; the job is not touched by this.")


def _show(meter: Meter, event: Event) -> None:
    if event.kind == "step":
        meter.step(event.data)
        return
    meter.see(event)
    note = remark(event)
    if note is not None:
        meter.note(note)


def _print_events(client: Client, screen: Screen, job: Job, logs: PrintedLogs) -> Job:
    """Print the events as lines of JSON, with log lines if an option asks for them."""
    for event in client.events(job.id, logs=logs.chosen, rank=logs.rank if logs.chosen else None):
        screen.json({"kind": event.kind, "cursor": event.cursor, "ts": event.ts, **event.data})
    return client.job(job.id)


def _refuse_of_a_server(options: Mapping[str, object]) -> None:
    """Raise InvalidParameter if one of these options has a value."""
    for option, given in options.items():
        if given is not None:
            remedy = "Leave it out, or leave --local out."
            raise InvalidParameter(f"{option} is for a run by a control plane.", field=option, remedy=remedy)


def _client_for_run(screen: Screen, stack: ExitStack, url: str | None, document: Any) -> tuple[Client, Borrowed | None]:
    """A client of the named control plane; or of the data folder's, which is borrowed until `stack` closes."""
    settings = Settings()
    # Only what was named, or is the data folder's own: another user's control plane may listen on the default port.
    if url is not None or settings.url is not None:
        return stack.enter_context(Client(url)), None
    if pidfile.read(settings.data_dir) is None:
        from ...http.validation_errors import read_spec

        read_spec(document)  # what is wrong at sight needs no cluster to be found
    borrowed = stack.enter_context(Borrowed(screen))
    return stack.enter_context(Client()), borrowed


def _say_submitted(screen: Screen, job: Job) -> None:
    screen.warnings(job.warnings)
    layout = ", ".join(filter(None, (job.layout, job.batch)))  # a program has no batch
    screen.say(f"Submitted {job.name} as {job.id}: {layout}.")
    if job.layout_choice is not None:
        screen.say(f"Layout: {job.layout}, {job.layout_choice}.")


def _run_to_the_end(follower: Follower, job: Job, borrowed: Borrowed | None, signals: EndSignals) -> Job:
    client, screen = follower.client, follower.screen
    try:
        with hangup_awaited():
            _say_submitted(screen, job)
            return follower.follow(job)
    except KeyboardInterrupt:
        signals.disregard()
        screen.say("Cancelling the job. Ctrl-C again leaves it to itself.")
    try:
        client.cancel(job.id)
        return follower.follow(client.job(job.id))
    except ApiError as error:
        if error.code != "job_ended":
            raise
        return client.job(job.id)
    except KeyboardInterrupt:
        if borrowed is not None:
            borrowed.keep()  # a control plane must see the job's end
        screen.hint(f"Left. See its effect with: shardyard watch {job.id}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
