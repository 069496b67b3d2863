"""`shardyard collectives`: the speed of collectives by size, on this machine or as a job on the cluster, and slow links and nodes."""

import json as text
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ....service.spec import JobSpec
from ....strategies.layout import Refusal
from ... import spec_file
from ...client import Client
from ...errors import InvalidParameter
from ...http.validation_errors import read_training_spec
from ..options import Json, Url
from ..terminal.screen import Screen

_SIZES = "64KiB,1MiB,16MiB"
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MOST = 8 << 30


def collectives(
    spec: Annotated[
        str | None, typer.Option("--spec", metavar="SPEC", help="Time the groups of this spec's layout, too.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, max=4096, help="Number of ranks. Default: the spec's, else 2.")
    ] = None,
    sizes: Annotated[str, typer.Option("--sizes", help="Sizes, with commas between them.")] = _SIZES,
    submit: Annotated[bool, typer.Option("--submit", help="Run on the cluster, as a job.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Time broadcast, reduce, all-reduce, reduce-scatter, all-gather, all-to-all and send/recv; name slow links and nodes."""
    given = None if spec is None else _read(spec)
    world = ranks or (2 if given is None else given.world_size)
    if given is not None and world != given.world_size:
        message = f"{world} is not the {given.world_size} ranks of the spec's layout."
        raise InvalidParameter(message, field="--ranks", remedy="Leave it out, or give another spec.")
    arguments = ["--sizes", ",".join(map(str, _bytes(sizes)))]
    if given is not None:
        arguments += ["--layout", given.train.layout.model_dump_json()]
    screen = Screen()
    if submit:
        _submit(screen, arguments, world, given, url, json)
        return
    report = timed_here(arguments, world)
    if json:
        screen.json(report)
        return
    _show(screen, report)


def _read(path: str) -> JobSpec:
    """Raises InvalidParameter for a layout that has yet to be chosen."""
    given = read_training_spec(spec_file.load(path))
    try:
        given.train.refuse_undecided()
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None
    return given


def _bytes(sizes: str) -> list[int]:
    """Raises InvalidParameter."""
    found = []
    for each in sizes.split(","):
        number = each.strip().rstrip("KMGiB")
        unit = each.strip()[len(number) :] or "B"
        if not number.isdecimal() or unit not in _UNITS or not 4 <= int(number) * _UNITS[unit] <= _MOST:
            message = f"{each.strip()[:40]!r} is no size between 4 bytes and 8 GiB."
            raise InvalidParameter(message, field="--sizes", remedy=f"Such as {_SIZES}.")
        found.append(int(number) * _UNITS[unit])
    return found


def timed_here(arguments: list[str], world: int) -> dict[str, Any]:
    """The report of ranks on this machine. Raises InvalidParameter."""
    from ....workers.program.captured_run import RanksFailed, lines_of_rank_0
    from .local_run import gpus_here

    gpus = gpus_here("auto", world)
    arguments = [*arguments, "--json", "--device", "cpu" if gpus is None else "cuda"]
    try:
        lines = list(lines_of_rank_0("workers.collectives", arguments, world, gpus))
    except RanksFailed as error:
        message = f"A rank ended with status {error.status}: {error.cause[:500]}"
        raise InvalidParameter(message, field="--ranks", remedy="Try fewer ranks, or smaller --sizes.") from None
    found: dict[str, Any] = text.loads(next(line for line in lines if line.startswith("{")))
    return found


def _submit(
    screen: Screen, arguments: list[str], world: int, given: JobSpec | None, url: str | None, json: bool
) -> None:
    resources = {} if given is None else given.resources.model_dump(mode="json", exclude={"force"})
    command = ["python", "-m", "shardyard.workers.collectives", *arguments]
    asked = {"name": "collectives", "command": command, "ranks": world, "resources": resources}
    if given is not None and given.together > 1:
        asked["ranks_per_node"] = given.together
    with Client(url) as client:
        job = client.submit(asked)
    if json:
        screen.json(job)
        return
    screen.out.print(job.id)
    screen.hint(f"Read the table with: shardyard logs {job.id} -f")


def _show(screen: Screen, report: Mapping[str, Any]) -> None:
    from ....workers.collectives.report import table

    head, *rows = table(report)
    nodes = len(set(report["nodes"]))
    where = f"{report['world_size']} ranks on {nodes} node{'s' if nodes > 1 else ''}"
    screen.say(f"{report['backend']}, {where}")
    screen.table(head, rows)
    for finding in report["findings"]:
        screen.say(finding)
