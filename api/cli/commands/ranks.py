"""`shardyard ranks` and `shardyard resources`: what the ranks of a job do and hold."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.markup import escape

from ....service.schemas.rank import RankMetrics
from ....service.schemas.resource import CommVolume, MemoryUsage
from ....workers.supervisor.rank_samples import MOST_RANKS
from ...client import Client
from ..job_names import job_id
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, milliseconds, moment, number, size


def ranks(
    job: JobName,
    slowest: Annotated[
        int | None,
        typer.Option("--slowest", min=1, help="Print only this many ranks, those with the most compute time first."),
    ] = None,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Print an earlier sample.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print each rank's last sample: its mesh coordinates, step, compute time, wait time and memory."""
    screen = Screen()
    with Client(url) as client:
        found = job_id(client, job, before)
        page = client.ranks(found, before=before, limit=1)
        domains = {} if json else {node.id: node.domain for node in client.nodes() if node.domain}
        sampled = bool(page.items) or json or client.job(found).world_size <= MOST_RANKS
    if json:
        screen.json(page)
        return
    if not page.items:
        why = "No sample yet: the first comes after five seconds of training."
        why = why if sampled else f"Jobs of more than {MOST_RANKS:,} ranks have no samples."
        screen.hint(f"{why} See its state with: shardyard show {job}")
        return
    [sample] = page.items
    order: Sequence[int] = range(len(sample.step_s))
    if slowest is not None:
        order = sorted(order, key=lambda rank: -(sample.busy_s[rank] or 0.0))[:slowest]
    steps = f"means of {sample.steps} steps up to " if sample.steps > 1 else ""
    screen.say(f"{moment(sample.ts)} · {steps}step {sample.step:,} of attempt {sample.attempt}")
    if sample.timed_steps is not None:
        screen.say(f"compute and wait time measured in {sample.timed_steps} of them")
    _ranks(screen, sample, order, domains)
    if sample.slow is not None:
        screen.say(sample.slow.message)
    if page.next is not None:
        screen.hint(f"Earlier with: shardyard ranks {found} --before {page.next}")


def _ranks(screen: Screen, sample: RankMetrics, order: Sequence[int], domains: Mapping[str, str]) -> None:
    axes = [axis for axis, degree in (sample.axes or {}).items() if degree > 1]
    memory = " ".join(filter(None, [sample.memory_of, "memory"])).upper()
    domain = ["DOMAIN"] if domains.keys() & set(sample.nodes) else []
    columns = ("RANK", *(axis.upper() for axis in axes), "STEP", "COMPUTE", "WAIT", memory, "NODE", *domain, "")
    screen.table(columns, [_rank(sample, rank, axes, domains if domain else None) for rank in order])


def _rank(sample: RankMetrics, rank: int, axes: Sequence[str], domains: Mapping[str, str] | None) -> tuple[str, ...]:
    place, node = sample.place(rank), sample.node_of[rank]
    times = [milliseconds(of[rank]) or "" for of in (sample.step_s, sample.busy_s, sample.wait_s)]
    slow = sample.slow is not None and sample.slow.rank == rank
    return (
        str(rank),
        *(str(place[axis]) for axis in axes),
        *times,
        size(sample.memory[rank]) or "",
        "" if node is None else escape(sample.nodes[node][:12]),
        *([] if domains is None else [escape("" if node is None else domains.get(sample.nodes[node], ""))]),
        "[red]slow[/]" if slow else "",
    )


def resources(job: JobName, url: Url = None, json: Json = False) -> None:
    """Print the memory and communication of a job's ranks: measured by the newest probe, and by formula."""
    screen = Screen()
    with Client(url) as client:
        found = client.resources(job)
    if json:
        screen.json(found)
        return
    measured = "not measured yet" if found.step is None else f"measured at step {found.step:,}"
    screen.say(f"{found.layout}: {measured}")
    if found.reason:
        screen.say(f"No formulas: {found.reason}")
    memory = [_held(one) for one in found.memory]
    if memory:
        screen.table(("HELD BY A RANK", "MEASURED", "PLANNED", "BY FORMULA", "FORMULA"), memory)
    if found.planned_by == "dry run":
        screen.say("The plan is by the submitter's dry run of the module.")
    if found.off_plan:
        screen.say(found.off_plan)
    sent = [_sent(one) for one in found.traffic]
    if sent:
        screen.out.print()
        screen.table(("AXIS", "SENT BY RANK 0 PER STEP", "CALLS", "MEASURED", "BY FORMULA", "FORMULA"), sent)
    if found.step is None:
        screen.hint(f"The first probe comes with the first steps. See its state with: shardyard show {job}")


def _held(one: MemoryUsage) -> tuple[str, ...]:
    return one.kind, _between(one.least, one.most), size(one.planned) or "", _between(one.low, one.high), _why(one)


def _sent(one: CommVolume) -> tuple[str, ...]:
    sizes = size(one.bytes) or "", size(one.formula_bytes) or ""
    return escape(one.axis), one.collective, number(one.calls) or "", *sizes, _why(one)


def _why(one: MemoryUsage | CommVolume) -> str:
    return escape(one.formula or one.reason or "")


def _between(low: float | None, high: float | None) -> str:
    """The range over all ranks; one value if both ends print the same."""
    return " – ".join(dict.fromkeys(filter(None, (size(low), size(high)))))
