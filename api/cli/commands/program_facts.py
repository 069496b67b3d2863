"""What `shardyard show` and `list` print of a job that runs a program: how it runs, and the newest values of what it logged."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....service.program_spec import Code, Environment
from ....service.schemas.job import Job
from ....service.schemas.logged_metric import LoggedMetrics, LoggedValue
from ...client import ApiError, Client
from ..terminal.screen import Screen, logged
from .code import commit_of

#: Logged metrics that `show` prints. `shardyard metrics` prints all.
MOST: Final = 20

Facts = list[tuple[str, str | None]]


def is_program(job: Job) -> bool:
    return "command" in job.spec


def facts(client: Client, job: Job) -> Facts:
    """Its command, code, folder and environment, as the spec has them."""
    spec = job.spec
    return [
        ("command", _command(spec["command"])),
        ("code", _code(client, spec.get("code"))),
        ("folder", spec.get("cwd")),
        ("env", _environment(spec.get("env"))),
    ]


def print_logged(screen: Screen, job: Job, page: LoggedMetrics | None) -> None:
    """Print the newest value of each metric of a page, if there is one."""
    if page is None:
        return
    screen.facts("logged", [(one.name, f"{_value(one.last)} at step {one.last_step:,}") for one in page.items])
    if page.next:
        screen.hint(f"See all that it logged with: shardyard metrics {job.id}")


def newest(client: Client, jobs: Sequence[Job]) -> dict[str, tuple[str, str]]:
    """By job what its program logged last under the names `step` and `loss`, as text: empty for what it did not log."""
    programs = [job.id for job in jobs if is_program(job) and job.started_at is not None]
    found = {one.job: one.values for one in client.logged_values(programs, ["step", "loss"])} if programs else {}
    return {job: _newest(found.get(job, {})) for job in programs}


def _value(last: float | None) -> str:
    return "not finite" if last is None else logged(last)


def _newest(values: Mapping[str, LoggedValue]) -> tuple[str, str]:
    step, loss = (values[name].last if name in values else None for name in ("step", "loss"))
    if step is None and "loss" in values:
        step = values["loss"].last_step
    return "" if step is None else logged(step), "" if loss is None else logged(loss)


def _command(command: list[str] | str) -> str:
    """The first line of it, with the number of the others."""
    first, *more = (command.strip() if isinstance(command, str) else shlex.join(command)).splitlines() or [""]
    return first + (f" … and {len(more)} more line{'s' * (len(more) > 1)}" if more else "")


def _code(client: Client, given: Mapping[str, Any] | None) -> str | None:
    if not given:
        return None
    digest = given["archive"]
    try:
        commit = commit_of(client.code(digest))
    except ApiError:  # the job's own facts are shown all the same
        commit = None
    return f"{Code.model_validate(given).source} · {f'commit {commit}' if commit else f'digest {digest[:12]}'}"


def _environment(given: Mapping[str, Any] | None) -> str | None:
    if not given:
        return None
    env = Environment.model_validate(given)
    python = ", ".join(env.python) if isinstance(env.python, list) else env.python
    about = [python, env.conda, env.image and f"image {env.image}", env.version and f"Python {env.version}"]
    return " · ".join(filter(None, [*about, "with the nodes' packages" if env.inherit else None]))
