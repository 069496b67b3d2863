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

_MOST = 16


@dataclass(frozen=True)
class _Run:
    """A job with its metrics of the step at which all are compared."""

    job: Job
    at: Step | None


def compare(
    jobs: Annotated[
        list[str],
        typer.Argument(metavar="JOB JOB…", help="Ids or names of at least two jobs.", autocompletion=job_names),
    ],
    at_step: Annotated[
        int | None,
        typer.Option("--at-step", min=1, help="Step to compare at. Default: the last step that all jobs have reached."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Compare jobs: their metrics at one step and at the end, and the differences of their specs."""
    if not 2 <= len(jobs) <= _MOST:
        message = f"{len(jobs)} job{'s were' if len(jobs) > 1 else ' was'} named."
        raise InvalidParameter(message, remedy=f"Name 2 to {_MOST} jobs; see how with: shardyard compare --help")
    screen = Screen()
    with Client(url) as client:
        found = [client.job(job) for job in jobs]
        step = at_step or min(job.progress.step if job.progress else 0 for job in found)
        runs = [_Run(job, _at(client, job, step)) for job in found]
    differing = differences([job.spec for job in found])
    if json:
        screen.json({"at_step": step, "jobs": [_to_json(run) for run in runs], "spec": differing})
        return
    screen.table(("", *(escape(run.job.name) for run in runs)), list(_rows(runs, step)))
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
    if step < 1:
        return None
    points = client.metrics(job.id, since=step - 1, max_points=2).points
    return points[0] if points and points[0].step == step else None


def _rows(runs: Sequence[_Run], step: int) -> Iterator[tuple[str, ...]]:
    """One row per fact; facts that no job has are left out."""
    for name, values in _facts(runs, step).items():
        if any(values):
            yield (name, *(value or "" for value in values))


def _facts(runs: Sequence[_Run], step: int) -> dict[str, list[str | None]]:
    jobs, at = [run.job for run in runs], [run.at for run in runs]
    ends = [job.summary for job in jobs]
    return {
        "id": [job.id for job in jobs],
        "state": [state(job) for job in jobs],
        "layout": [escape(job.layout) for job in jobs],
        "step": [f"{job.progress.step:,}/{job.progress.steps:,}" if job.progress else None for job in jobs],
        f"loss at step {step:,}": [_loss(one.loss) if one else None for one in at],
        f"tokens/s at step {step:,}": [number(one.tokens_per_s) if one else None for one in at],
        f"grad norm at step {step:,}": [_loss(one.grad_norm) if one else None for one in at],
        "last loss": [_loss(_last_loss(job)) for job in jobs],
        "validation loss": [_loss(end.validation_loss) if end else None for end in ends],
        "tokens": [number(end.tokens) if end else None for end in ends],
        "tokens/s": [number(end.tokens_per_s) if end else None for end in ends],
        "MFU": [None if end is None or end.mfu is None else f"{end.mfu:.1%}" for end in ends],
        "time to first step": [seconds(end.time_to_first_step_s) if end else None for end in ends],
        "time": [seconds(_took(job)) for job in jobs],
        "attempts": [str(job.attempt) if job.attempt > 1 else None for job in jobs],
    }


def _to_json(run: _Run) -> dict[str, Any]:
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


def _loss(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= 40 else text[:39] + "…")
