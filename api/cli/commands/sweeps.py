"""`shardyard sweeps`: lists sweeps, shows one with its trials, cancels one."""

from json import dumps
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from ....service.schemas.sweep import SweepDetail, SweepTrial
from ...client import Client
from ..exit_codes import of_state
from ..options import Json, Url
from ..terminal.screen import Screen, age, runs_on, seconds

#: Trials that are shown without --all.
_SHOWN: Final = 20
COLUMNS: Final = ("ID", "NAME", "STATE", "TRIALS", "BEST", "DEVICE TIME", "AGE")


def sweeps(
    sweep: Annotated[
        str | None, typer.Argument(metavar="[SWEEP]", help="A sweep's id, or a name: the newest sweep of that name.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the sweep: all trials that have not ended.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the sweep ends, and exit with its result.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show all trials, and not only the best 20.")] = False,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Continue the list after the previous page.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List sweeps, newest first; or show one, with its trials from best to worst."""
    screen = Screen()
    if sweep is None and (cancel or wait or all_):
        raise typer.BadParameter("--cancel, --wait and --all need the name of a sweep.")
    if sweep is not None and cursor is not None:
        raise typer.BadParameter("--cursor continues the list of sweeps; leave out the name, or --cursor.")
    with Client(url) as client:
        if sweep is None:
            _list(screen, client, cursor, json)
            return
        found = client.cancel_sweep(sweep) if cancel else client.sweep(sweep)
        if wait:
            with runs_on(screen, f"The sweep keeps running. See it with: shardyard sweeps {found.id}"):
                found = client.wait_for_sweep(found.id)
        trials = client.trials(found.id).items
    if json:
        screen.json({**found.model_dump(mode="json"), "items": [one.model_dump(mode="json") for one in trials]})
    else:
        show(screen, found, trials, len(trials) if all_ else _SHOWN)
    if wait:
        raise typer.Exit(of_state(found.state))


def _list(screen: Screen, client: Client, cursor: str | None, json: bool) -> None:
    page = client.sweeps(cursor=cursor)
    if json:
        screen.json(page)
        return
    screen.table(COLUMNS, [_row(one) for one in page.items])
    if not page.items:
        screen.hint("No sweeps. Add sweep to a spec, and submit it with: shardyard submit SPEC")
    if page.next:
        screen.hint(f"More with: shardyard sweeps --cursor {page.next}")


def show(screen: Screen, found: SweepDetail, trials: list[SweepTrial], most: int) -> None:
    """Print a sweep, and its best trials."""
    asha = f"at steps {', '.join(map(str, found.rungs))}" if found.rungs else None
    warned = [one.message for one in trials if one.message and one.state not in ("failed", "refused", "cancelled")]
    screen.facts(
        f"{found.name} ({found.id})",
        [
            ("state", found.state),
            ("", found.message),
            ("search", f"{found.sweep.search}, {found.trials} trials, at most {found.sweep.parallel} at once"),
            ("compares", f"{found.metric}, {found.sweep.goal}"),
            ("stops early", asha),
            ("trials", ", ".join(f"{count} {state}" for state, count in sorted(found.counts.items()))),
            ("device time", seconds(found.device_s)),
            ("warning", f"of {len(warned)} trial{'s' * (len(warned) > 1)}: {warned[0]}" if warned else None),
        ],
    )
    paths = list(found.sweep.parameters)
    ordered = sorted(trials, key=lambda one: _merit(one, found.sweep.goal == "minimize"))
    columns = ("TRIAL", "STATE", "STEP", escape(found.metric.upper()), *map(escape, paths), "JOB")
    screen.table(columns, [_trial_row(one, paths) for one in ordered[:most]])
    if len(ordered) > most:
        screen.hint(f"{len(ordered) - most} more with: shardyard sweeps {found.id} --all")


def _merit(one: SweepTrial, lowest: bool) -> tuple[bool, bool, int, float, int]:
    """Sorts trials: those that ran to their end by the metric, then the others by rungs and metric; those without one last."""
    value = 0.0 if one.value is None else one.value if lowest else -one.value
    ended = one.state == "succeeded"
    return one.value is None, not ended, 0 if ended else -len(one.rungs), value, one.number


def _trial_row(one: SweepTrial, paths: list[str]) -> tuple[str, ...]:
    values = [escape(_text((one.parameters or {}).get(path))) for path in paths]
    metric = "" if one.value is None else f"{one.value:.5g}"
    return (str(one.number), one.state, "" if one.step is None else str(one.step), metric, *values, one.job or "")


def _row(found: SweepDetail) -> tuple[str, ...]:
    ended = sum(count for state, count in found.counts.items() if state not in ("waiting", "active", "paused"))
    best = "" if found.best is None or found.best.value is None else f"{found.best.value:.5g}"
    done = f"{ended}/{found.trials}"
    return (found.id, found.name, found.state, done, best, seconds(found.device_s) or "", age(found.created_at))


def _text(value: Any) -> str:
    """A parameter's value as it may be copied into a spec, numbers that are not whole to four digits; empty if it is not decided."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else dumps(value)
