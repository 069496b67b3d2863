"""Commands about one job or the list of jobs: list, show, cancel, reshard, schema."""

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.markup import escape

from ....service.errors import ShardyardError
from ....service.schemas.job import Budgets, Job, JobFiles
from ....service.schemas.job_order import SORTS
from ....service.schemas.logged_metric import LoggedMetrics
from ....service.schemas.timeline import Plan, StateSpan, Timeline
from ...client import Client
from ...errors import InvalidParameter
from ...spec_document import parse
from ..options import JobName, Json, Url, read_labels
from ..terminal.screen import Screen, age, loss, moment, number, seconds, size, state
from . import life, listed_numbers, program_facts, submitted_spec

#: Number of past states that `show` prints.
_PAST_STATES = 20
#: Number of jobs that `list` prints.
_LIMIT = 50
COLUMNS = ("ID", "NAME", "STATE", "STEP", "LOSS", "TOKENS/S", "LAYOUT", "AGE")


def list_(  # noqa: PLR0913, PLR0917 - a condition each
    state_: Annotated[str | None, typer.Option("--state", help="List only jobs in this state.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="List only jobs with this label, key=value; may be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="List only jobs of this name.")] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="List only jobs whose id or name contains this text.")
    ] = None,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="List only deleted jobs that can be restored. Else they are left out.")
    ] = False,
    sort: Annotated[str, typer.Option("--sort", metavar="ORDER", help=f"Order of the jobs: {SORTS}.")] = "newest",
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="Maximum number of jobs.")] = _LIMIT,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Continue after the previous page.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List jobs, newest first, or in another order."""
    screen = Screen()
    labels = read_labels(label or [])
    with Client(url) as client:
        page = client.jobs(
            state=state_, label=labels, name=name, text=text, deleted=deleted, sort=sort, limit=limit, cursor=cursor
        )
        sorted_by = None if json or deleted else listed_numbers.column(client, page.items, sort)
        logged: dict[str, tuple[str, str]] = {} if json or deleted else program_facts.newest(client, page.items)
    given = {"state": state_, "name": name, "text": text, "sort": None if sort == "newest" else sort}
    more = ["shardyard", "list", *(f"--{option}={value}" for option, value in given.items() if value is not None)]
    more += [f"--label={pair}" for pair in label or []] + [f"--limit={limit}"] * (limit != _LIMIT)
    if json:
        screen.json(page)
    elif deleted:
        life.print_deleted(screen, page, more)
    else:
        _print_rows(screen, page.items, logged, sorted_by)
        if not page.items:
            screen.hint("No jobs. Submit one with: shardyard submit SPEC")
        if page.next:
            screen.hint(f"More with: {shlex.join([*more, '--cursor', page.next])}")


def _print_rows(
    screen: Screen,
    jobs: Sequence[Job],
    logged: Mapping[str, tuple[str, str]],
    sorted_by: tuple[str, Mapping[str, str]] | None,
) -> None:
    head, numbers = sorted_by or ("", {})
    rows = [row(job, *logged.get(job.id, ("", ""))) for job in jobs]
    if not head:
        screen.table(COLUMNS, rows)
        return
    # Before the age, as on the page.
    columns = (*COLUMNS[:-1], escape(head), COLUMNS[-1])
    screen.table(
        columns, [(*cells[:-1], numbers.get(job.id, ""), cells[-1]) for job, cells in zip(jobs, rows, strict=True)]
    )


def show(
    job: JobName,
    submitted: Annotated[
        bool, typer.Option("--submitted", help="Print its spec only, as it was submitted, with the comments.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show a job: spec, layout, states, progress, what its program logged, summary."""
    screen = Screen()
    with Client(url) as client:
        if submitted:
            submitted_spec.show(screen, client.submitted_spec(job), json=json)
            return
        found = client.job(job)
        if json:
            screen.json(found)
            return
        timeline, plan = client.timeline(found.id), client.plan(found.id)
        kind, logged = _of_kind(client, found)
    train = found.spec.get("train", {})
    screen.facts(
        f"{found.name} ({found.id})",
        [
            ("state", " · ".join(filter(None, [found.state, found.reason, _first_line(found)]))),
            *kind,
            *_layout(found),
            ("batch", found.batch),
            ("steps", number(train.get("steps"))),
            ("precision", _precision(train.get("precision"), plan)),
            *(("", reason) for reason in plan.choices or ()),
            ("labels", ", ".join(f"{key}={value}" for key, value in found.labels.items())),
            ("pinned", "yes" if found.pinned else None),
            ("certificate", _certificate(found)),
            ("retry of", found.retry_of),
            ("retried by", found.retried_by),
            ("parameters", number(plan.parameters)),
            ("corpus", _corpus(plan)),
            *((f"files {one.target}", _files(one)) for one in found.files),
            ("attempt", str(found.attempt) if found.attempt else None),
            ("budgets", _used(found.budgets) if found.attempt else None),
            ("time", _time_limit(found)),
            ("retry at", moment(found.retry_at.timestamp()) if found.retry_at else None),
        ],
    )
    screen.paragraph("notes", found.notes)
    _progress(screen, found)
    program_facts.print_logged(screen, found, logged)
    _states(screen, found, timeline)
    _end(screen, found)


def _of_kind(client: Client, found: Job) -> tuple[program_facts.Facts, LoggedMetrics | None]:
    """What a training or a program consists of, and what a program logged."""
    if program_facts.is_program(found):
        return program_facts.facts(client, found), client.logged_metrics(found.id, limit=program_facts.MOST)
    train = found.spec.get("train", {})
    return [("model", _model(train.get("model", {}))), ("data", _data(train.get("data", {})))], None


def _states(screen: Screen, found: Job, timeline: Timeline) -> None:
    screen.facts("states", [(moment(span.begun), _span_text(span)) for span in timeline.spans[-_PAST_STATES:]])
    if timeline.marks or len(timeline.spans) > _PAST_STATES:
        screen.hint(f"See the whole timeline with: shardyard timeline {found.id}")


def _end(screen: Screen, found: Job) -> None:
    if found.state == "failed":
        screen.failure(found)
    elif found.summary:
        screen.summary(found)


def _certificate(job: Job) -> str | None:
    if (found := job.certificate) is None:
        return None
    result = "equal to" if found.equal else "DIFFERENT from"
    that = f" that {found.extra}" if found.extra else ""
    return f"{result} one process{that} ({found.layout}; key {found.key})"


def _layout(job: Job) -> list[tuple[str, str | None]]:
    return [("layout", f"{job.layout}  ({_devices(job)})"), ("", job.layout_choice)]


def _devices(job: Job) -> str:
    spares = job.spec.get("policy", {}).get("spares", 0)
    also = f" + {spares} spare{'s' * (spares > 1)}" if spares else ""
    return f"{job.world_size} ranks{also}{', ' + job.device if job.device else ''}"


def cancel(job: JobName, url: Url = None, json: Json = False) -> None:
    """Cancel a job."""
    with Client(url) as client:
        _print_changed(client.cancel(job), json)


def pause(job: JobName, url: Url = None, json: Json = False) -> None:
    """Pause a job: it saves a checkpoint and frees its devices. `shardyard resume` continues it."""
    with Client(url) as client:
        _print_changed(found := client.pause(job), json, f"Continue it with: shardyard resume {found.id}")


def resume(job: JobName, url: Url = None, json: Json = False) -> None:
    """Queue a paused job again. It continues from its newest checkpoint."""
    with Client(url) as client:
        _print_changed(found := client.resume(job), json, f"Watch it with: shardyard watch {found.id}")


def _print_changed(found: Job, json: bool, hint: str | None = None) -> None:
    screen = Screen()
    if json:
        screen.json(found)
        return
    screen.out.print(f"{found.id}  {found.name}  {state(found)}")
    if hint is not None:
        screen.hint(hint)


def reshard(
    job: JobName,
    degrees: Annotated[
        list[str],
        typer.Argument(metavar="FIELD=VALUE…", help="The complete new layout, for example data=2 tensor=2 zero=1."),
    ],
    url: Url = None,
    json: Json = False,
) -> None:
    """Change the layout of a job: it saves a checkpoint after its current step and resumes from it."""
    wrong = next((text for text in degrees if "=" not in text), None)
    if wrong is not None:
        raise InvalidParameter(f"{wrong[:80]!r} is not field=value.", field="layout", remedy="Such as data=2 tensor=2.")
    layout = {name: _value(name, value) for name, _, value in (text.partition("=") for text in degrees)}
    screen = Screen()
    with Client(url) as client:
        found = client.reshard(job, layout)
    if json:
        screen.json(found)
    else:
        screen.out.print(f"{found.id}  {found.name}  {state(found)}  {found.layout}")
        screen.hint(f"Watch it with: shardyard watch {found.id}")


def _value(name: str, text: str) -> Any:
    """A field's value, written as in a spec. Raises InvalidParameter."""
    try:
        return parse(text.encode(), "yaml")
    except ShardyardError as error:
        remedy = "Such as data=2, or for a range: 'data={min: 1, max: 4}'."
        raise InvalidParameter(f"{name}={text[:60]}: {error.message}", field=f"layout.{name}", remedy=remedy) from None


class Kind(StrEnum):
    """Kinds of jobs."""

    TRAIN = "train"
    COMMAND = "command"


def schema(
    kind: Annotated[
        Kind, typer.Option("--kind", help="Kind of job: one that trains, or one that runs a command.")
    ] = Kind.TRAIN,
    json: Json = False,  # noqa: ARG001  (it prints nothing else)
) -> None:
    """Print the JSON Schema of a job spec."""
    from ...http.validation_errors import job_schema

    Screen().json(job_schema(kind.value))


def ended(screen: Screen, job: Job, *, alone: bool = False) -> None:
    """Print a finished job's summary, or why it failed. `alone`: the control plane ends with this command."""
    if job.state == "failed":
        screen.failure(job)
        screen.hint(f"Read its logs with: {'shardyard up --detach; ' if alone else ''}shardyard logs {job.id}")
    else:
        screen.summary(job)
        if job.state == "succeeded":
            _hint_next(screen, job, alone)


def _hint_next(screen: Screen, job: Job, alone: bool) -> None:
    """Hints: the job's page and a sample. Without a control plane only the path names a checkpoint."""
    screen.hint(f"See its page with: {'shardyard up --detach; ' if alone else ''}shardyard open {job.id}")
    checkpoint = job.summary.checkpoint if job.summary else None
    if checkpoint:
        screen.hint(f"Generate text with: shardyard sample {checkpoint if alone else job.id}")


def row(job: Job, logged_step: str = "", logged_loss: str = "") -> tuple[str, ...]:
    """A job as a line of a table of `COLUMNS`, with the step and loss that its program logged."""
    progress = job.progress
    done = f"{progress.step}/{progress.steps}" if progress else logged_step
    found = progress.loss if progress else None
    speed = progress.tokens_per_s if progress else None
    shown_loss = logged_loss if found is None else f"{found:.4f}"
    return (job.id, job.name, state(job), done, shown_loss, number(speed) or "", job.layout, age(job.created_at))


def _span_text(span: StateSpan) -> str:
    """A state with its reason and duration."""
    lasted = None if span.ended is None else seconds(span.ended - span.begun)
    return " · ".join(filter(None, [span.state, span.reason, lasted]))


def _corpus(plan: Plan) -> str | None:
    if not plan.train_tokens:  # not known, or without end
        return None
    return f"{number(plan.train_tokens)} tokens, {number(plan.validation_tokens) or 0} for validation"


def _files(found: JobFiles) -> str:
    """One source, and what it had when the job first read it."""
    known = [found.source, found.revision and f"commit {found.revision[:12]}"]
    if found.files is not None:
        known += [f"{found.files:,} file{'s' * (found.files != 1)}", size(found.bytes), f"digest {found.digest}"]
    return " · ".join(filter(None, known))


def _first_line(job: Job) -> str | None:
    """The first line of the job's message; a failure is printed below."""
    return None if job.state == "failed" else next(iter((job.message or "").strip().splitlines()), None)


def _used(budgets: Budgets) -> str:
    """How much of each budget is used; a budget that is neither used nor allowed is left out."""
    known = {name: getattr(budgets, name) for name in ("restarts", "retries", "repairs")}
    return " · ".join(f"{name} {one.used} of {one.limit}" for name, one in known.items() if one.used or one.limit)


def _time_limit(job: Job) -> str | None:
    """What is used of the job's `policy.max_duration`."""
    if (found := job.time_limit) is None:
        return None
    left = None if found.ends_at is None else f"{seconds(max(0.0, found.limit_s - found.used_s))} left"
    return ", ".join(filter(None, [f"{seconds(found.used_s)} of {seconds(found.limit_s)} used", left]))


def _progress(screen: Screen, job: Job) -> None:
    progress = job.progress
    if progress is None:
        return
    screen.facts(
        "progress",
        [
            ("step", f"{progress.step} of {progress.steps}"),
            ("loss", loss(progress.loss)),
            ("tokens", number(progress.tokens)),
            ("tokens/s", number(progress.tokens_per_s)),
            ("time left", seconds(progress.eta_s)),
            ("checkpoint", job.checkpoint),
        ],
    )


def _model(model: dict[str, object]) -> str:
    if model.get("import"):
        return str(model["import"])
    return f"{model.get('family', 'llama')} {model.get('preset', 'nano')}"


def _precision(precision: object, plan: Plan) -> str | None:
    """The precision that the gang reported, else that in the spec: a word or an object."""
    if not isinstance(precision, dict):
        return plan.precision or (None if precision is None else str(precision))
    compute = plan.precision or precision.get("compute", "auto")
    narrow = precision.get("gradients") == "compute" and compute not in ("fp64", "fp32")
    return chosen(f"{compute}{', gradients too' if narrow else ''}", plan.compile)


def chosen(precision: str, compiled: bool | None) -> str:
    return f"{precision}{', compiled' if compiled else ''}"


def _data(data: dict[str, object]) -> str:
    source = str(data.get("source", "python-stdlib"))
    if ":" in source:  # of the user's own
        return source
    return f"{source}, {data.get('tokenizer', 'bytes')}, sequences of {data.get('seq_len', 256)}"
