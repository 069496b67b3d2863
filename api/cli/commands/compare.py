"""`shardyard compare`: metrics and spec differences of several jobs, side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.markup import escape

from ....service.schemas.job import Job
from ....service.schemas.step import Step
from ...client import Client
from ...errors import InvalidParameter
from ..job_names import job_names
from ..options import Json, Url
from ..terminal.screen import Screen, number, seconds, state
from . import compared_metrics
from .compared_metrics import ComparedMetric, beside
from .program_facts import is_program

_MOST = 16


@dataclass(frozen=True)
class _Run:
    """A job with its metrics of the step at which all are compared."""

    job: Job
    at: Step | None


@dataclass(frozen=True)
class _Comparison:
    """`step`: at which trainings are compared, 0 for none. `wanted`: the step that was named. `base`: the place of the baseline."""

    runs: Sequence[_Run]
    step: int
    wanted: int | None
    base: int
    metrics: dict[str, ComparedMetric]


def compare(
    jobs: Annotated[
        list[str],
        typer.Argument(metavar="JOB JOB…", help="Ids or names of at least two jobs.", autocompletion=job_names),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="JOB",
            help="The job to which the others' differences are shown. Default: the first.",
            autocompletion=job_names,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", metavar="NAME", help="Logged metric to compare. Repeat it. Default: those that most jobs have."
        ),
    ] = None,
    at_step: Annotated[
        int | None,
        typer.Option("--at-step", min=1, help="Step to compare at. Default: the last step that all jobs have reached."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Compare jobs: trainings at one step and at the end, what programs logged, and the differences of their specs."""
    if not 2 <= len(jobs) <= _MOST:
        message = f"{len(jobs)} job{'s were' if len(jobs) > 1 else ' was'} named."
        raise InvalidParameter(message, remedy=f"Name 2 to {_MOST} jobs; see how with: shardyard compare --help")
    screen = Screen()
    with Client(url) as client:
        found = [client.job(job) for job in jobs]
        base = _place(client, found, baseline)
        names, more = _names(client, found, metric)
        metrics = compared_metrics.read(client, [job.id for job in found], names, at_step)
        step = at_step or _common_step(found)
        compared = _Comparison([_Run(job, _at(client, job, step)) for job in found], step, at_step, base, metrics)
    differing = differences([job.spec for job in found])
    if json:
        screen.json({**_plain(compared), "spec": differing})
        return
    _print(screen, compared, differing)
    if missing := [name for name in metric or [] if name not in metrics]:
        screen.say(f"None of the jobs has logged {', '.join(missing)}. See what one has with: shardyard metrics JOB")
    if more:
        screen.hint("They logged more metrics. Choose some with: shardyard compare JOB JOB --metric NAME")


def _place(client: Client, found: Sequence[Job], baseline: str | None) -> int:
    """The place of the baseline among the jobs. Raises InvalidParameter."""
    if baseline is None:
        return 0
    wanted = client.job(baseline).id
    place = next((at for at, job in enumerate(found) if job.id == wanted), None)
    if place is None:
        message = f"{baseline[:80]!r} is none of the jobs that are compared."
        raise InvalidParameter(message, field="--baseline", remedy="Name one of the jobs that you compare.")
    return place


def _names(client: Client, found: Sequence[Job], chosen: Sequence[str] | None) -> tuple[list[str], bool]:
    """The metrics that are compared, and whether the jobs have more. Raises InvalidParameter for too many."""
    if not chosen:
        return compared_metrics.names_of(client, [job.id for job in found])
    names = list(dict.fromkeys(chosen))
    if len(names) > compared_metrics.MOST_CHOSEN:
        remedy = f"Choose at most {compared_metrics.MOST_CHOSEN} metrics."
        raise InvalidParameter(f"{len(names)} metrics were named.", field="--metric", remedy=remedy)
    return names, False


def _common_step(found: Sequence[Job]) -> int:
    """The last step that all trainings have reached; 0 without any."""
    return min((job.progress.step if job.progress else 0 for job in found if not is_program(job)), default=0)


def _print(screen: Screen, compared: _Comparison, differing: dict[str, list[Any]]) -> None:
    runs = compared.runs
    screen.table(("", *(escape(run.job.name) for run in runs)), list(_rows(compared)))
    screen.out.print()
    if compared.metrics:
        rows = compared_metrics.rows(compared.metrics, compared.base, compared.wanted)
        screen.table(("LOGGED", *(escape(run.job.name) for run in runs)), rows)
        screen.out.print()
    if differing:
        screen.table(
            ("SPEC", *(run.job.id for run in runs)), [(escape(k), *map(_shown, v)) for k, v in differing.items()]
        )
    else:
        screen.say("Their specs are the same.")


def differences(specs: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The fields that differ, dotted, with the value in each spec; None if it has none."""
    flat = [dict(_leaves(spec, "")) for spec in specs]
    fields = dict.fromkeys(field for one in flat for field in one)
    by_field = {field: [one.get(field) for one in flat] for field in fields}
    return {field: values for field, values in by_field.items() if any(value != values[0] for value in values)}


def _leaves(value: Any, field: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(part, f"{field}.{name}".lstrip("."))
    else:
        yield field, value


def _at(client: Client, job: Job, step: int) -> Step | None:
    """The metrics of exactly this step: the first one after the previous step, which thinning keeps."""
    if step < 1 or is_program(job):
        return None
    points = client.metrics(job.id, since=step - 1, max_points=2).points
    return points[0] if points and points[0].step == step else None


def _rows(compared: _Comparison) -> Iterator[tuple[str, ...]]:
    """One row per fact; facts that no job has are left out."""
    for name, values in _facts(compared.runs, compared.step, compared.base).items():
        if any(values):
            yield (name, *(value or "" for value in values))


def _facts(runs: Sequence[_Run], step: int, base: int) -> dict[str, list[str | None]]:
    jobs, at = [run.job for run in runs], [run.at for run in runs]
    ends = [job.summary for job in jobs]
    return {
        "id": [job.id for job in jobs],
        "state": [state(job) for job in jobs],
        "layout": [escape(job.layout) for job in jobs],
        "step": [f"{job.progress.step:,}/{job.progress.steps:,}" if job.progress else None for job in jobs],
        f"loss at step {step:,}": beside([one.loss if one else None for one in at], base, ".4f"),
        f"tokens/s at step {step:,}": beside([one.tokens_per_s if one else None for one in at], base, ",.0f"),
        f"grad norm at step {step:,}": beside([one.grad_norm if one else None for one in at], base, ".4f"),
        "last loss": beside([_last_loss(job) for job in jobs], base, ".4f"),
        "validation loss": beside([end.validation_loss if end else None for end in ends], base, ".4f"),
        "tokens": [number(end.tokens) if end else None for end in ends],
        "tokens/s": beside([end.tokens_per_s if end else None for end in ends], base, ",.0f"),
        "MFU": [None if end is None or end.mfu is None else f"{end.mfu:.1%}" for end in ends],
        "time to first step": [seconds(end.time_to_first_step_s) if end else None for end in ends],
        "time": [seconds(_took(job)) for job in jobs],
        "attempts": [str(job.attempt) if job.attempt > 1 else None for job in jobs],
    }


def _plain(compared: _Comparison) -> dict[str, Any]:
    return {
        "at_step": compared.step,
        "baseline": compared.runs[compared.base].job.id,
        "jobs": [_plain_run(run) for run in compared.runs],
        "metrics": compared_metrics.plain(compared.metrics, compared.base),
    }


def _plain_run(run: _Run) -> dict[str, Any]:
    job = run.job
    return {
        **job.model_dump(mode="json", include={"id", "name", "state", "layout", "world_size", "progress", "summary"}),
        "at": run.at.model_dump(mode="json") if run.at else None,
        "seconds": _took(job),
    }


def _took(job: Job) -> float | None:
    """Seconds from the first placement to the end."""
    if job.started_at is None or job.finished_at is None:
        return None
    return (job.finished_at - job.started_at).total_seconds()


def _last_loss(job: Job) -> float | None:
    if job.summary and job.summary.last_loss is not None:
        return job.summary.last_loss
    return job.progress.loss if job.progress else None


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= 40 else text[:39] + "…")
