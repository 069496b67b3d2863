"""Submits a job or a sweep, or says how it would run."""

import shlex
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ....service.schemas.memory_plan import MemoryPlan
from ....service.schemas.preview import Preview
from ...client import Client, JobHandle, module_plan, requests
from ...errors import InvalidParameter
from ...spec_file import GivenSpec
from ...spec_overrides import with_overrides
from ..exit_codes import of_state
from ..options import Json, Overrides, SpecPath, Url, Wait
from ..terminal.screen import Screen, number, runs_on, size, state
from . import sweeps
from .jobs import chosen, ended


def submit(
    spec: SpecPath,
    overrides: Overrides = None,
    wait: Wait = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the spec and print how it would run, without submitting it.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: submitting again with the same key returns the same job."),
    ] = None,
    no_plan: Annotated[
        bool,
        typer.Option("--no-plan", help="Do not run a module of your own here, by which its memory is planned."),
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Submit a job, or a sweep of jobs, and return, or wait for its end."""
    screen = Screen()
    given = with_overrides(requests.given(spec), overrides or [])
    document = given.document
    with Client(url) as client:
        if isinstance(document, dict) and "sweep" in document:
            _submit_sweep(screen, client, document, key, json, wait=wait, dry_run=dry_run)
            return
        plan_s = 0.0 if no_plan else None
        if module_plan.plans(document, plan_s):
            screen.planning()
        if dry_run:
            reasons: list[str] = []
            found = client.preview(given, plan_s=plan_s, on_unplanned=reasons.append)
            _preview(screen, found, reasons, shlex.join([spec, *(overrides or [])]), json)
            return
        submit_job(screen, client, given, key, json, wait=wait, plan_s=plan_s)


def submit_job(
    screen: Screen,
    client: Client,
    given: GivenSpec,
    key: str | None,
    json: bool,
    *,
    wait: bool,
    plan_s: float | None = None,
) -> None:
    """Submit a job and print it. With `wait` this command ends as the job does. `plan_s`: as of the client's `submit`."""
    job = client.submit(
        given,
        idempotency_key=key,
        on_upload=screen.uploading,
        plan_s=plan_s,
        on_unplanned=screen.unplanned,
    )
    show_submitted(screen, client, job, json, wait=wait)


def show_submitted(screen: Screen, client: Client, job: JobHandle, json: bool, *, wait: bool) -> None:
    """Print a new job. With `wait` this command ends as the job does."""
    screen.warnings(job.warnings)
    if not json:
        screen.out.print(f"{job.id}  {job.name}  {state(job)}")
        if job.layout_choice is not None:
            screen.say(f"Layout: {job.layout}, {job.layout_choice}.")
    if not wait:
        if json:
            screen.json(job)
        else:
            screen.hint(f"Watch it with: shardyard watch {job.id}")
        return
    with runs_on(screen, f"The job keeps running. Watch it with: shardyard watch {job.id}"):
        if json:  # its result comes at the end: who is interrupted before needs the id
            screen.say(f"Submitted {job.name} as {job.id}.")
        done = client.wait(job.id)
    if json:
        screen.json(done)
    else:
        ended(screen, done)
    raise typer.Exit(of_state(done.state))


def _submit_sweep(
    screen: Screen, client: Client, document: dict[str, Any], key: str | None, json: bool, *, wait: bool, dry_run: bool
) -> None:
    if dry_run:
        remedy = "Leave it out to see how one trial would run; the submission checks the sweep."
        raise InvalidParameter("A sweep has no dry run.", field="sweep", remedy=remedy)
    found = client.submit_sweep(document, idempotency_key=key, on_upload=screen.uploading)
    if not json:
        screen.out.print(f"{found.id}  {found.name}  {found.state}  {found.trials} trials")
    if wait:
        with runs_on(screen, f"The sweep keeps running. See it with: shardyard sweeps {found.id}"):
            if json:
                screen.say(f"Submitted {found.name} as {found.id}.")
            found = client.wait_for_sweep(found.id)
    if json:
        screen.json(found)
    elif wait:
        sweeps.show(screen, found, client.trials(found.id).items, 20)
    else:
        screen.hint(f"See its trials with: shardyard sweeps {found.id}")
    if wait:
        raise typer.Exit(of_state(found.state))


def _preview(screen: Screen, found: Preview, reasons: Sequence[str], spec: str, json: bool) -> None:
    """`reasons`: why there is no memory plan."""
    if json:
        for reason in reasons:
            screen.unplanned(reason)
        screen.json(found)
        return
    spares = f" + {found.spares} spare{'s' * (found.spares > 1)}" if found.spares else ""
    screen.facts(
        found.name,
        [
            ("layout", f"{found.layout}  ({found.world_size} ranks{spares})"),
            ("", found.layout_choice),
            *(_of_command(found.command) if found.command else _of_training(found)),
            *(("", reason) for reason in found.choices),
            *(_memory(found.memory) if found.memory else _unplanned(found, reasons, spec)),
            ("resumes", found.resume),
            *(("or", f"{form.layout}: {form.batch}") for form in found.elastic_layouts),
        ],
    )
    screen.warnings(found.warnings)
    screen.hint(f"Submit it with: shardyard submit {spec}")


def _of_command(command: Sequence[str]) -> list[tuple[str, str | None]]:
    return [("command", shlex.join(command))]


def _of_training(found: Preview) -> list[tuple[str, str | None]]:
    return [
        ("batch", found.batch),
        ("tokens", f"{number(found.tokens)}, {number(found.tokens_per_step)} per step"),
        ("parameters", number(found.parameters)),
        ("precision", chosen(found.precision or "", bool(found.compile))),
    ]


def _unplanned(found: Preview, reasons: Sequence[str], spec: str) -> list[tuple[str, str]]:
    """Of a training without a memory plan, which only a module of the user's own may be."""
    if not found.needs_dry_run:
        return []
    why = reasons or ["there is no formula for a module of your own"]
    return [
        *(("memory", f"not planned: {reason}") for reason in why),
        ("", f"What a step of it needs on GPUs says: shardyard dry-run {spec}"),
    ]


def _memory(plan: MemoryPlan) -> list[tuple[str, str]]:
    """A rank's plan in one line, and its kinds in another."""
    fits = {True: "fits", False: "does not fit", None: "unknown whether it fits"}[plan.fits]
    has = ""
    if plan.device_bytes is not None:
        has = f" of {size(plan.device_bytes)} " + ("per GPU" if plan.device == "cuda" else "per node")
    kinds = [f"{one.kind} {size(one.bytes)}" for one in plan.kinds]
    kinds += [f"{one.kind} on the host {size(one.bytes)}" for one in plan.host]
    by = ", by dry run" if plan.source == "dry run" else ""
    return [
        ("memory", f"{fits}: {size(plan.needed_bytes)} per rank{has}{by}"),
        ("at the peak", f"{', '.join(kinds)}, the process itself {size(plan.reserved_bytes)}"),
        *(("", note) for note in plan.notes),
    ]
