"""`shardyard edit`: changes a job's name, labels and notes, and pins it."""

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from ....service.schemas.job import LONGEST_NOTES, Job
from ...client import Client
from ...errors import InvalidParameter
from ..options import JobName, Json, Url, read_labels
from ..terminal.screen import Screen, state


def edit(
    job: JobName,
    name: Annotated[str | None, typer.Option("--name", help="New name of the job.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="Add or change this label, key=value; may be repeated.")
    ] = None,
    remove_label: Annotated[
        list[str] | None, typer.Option("--remove-label", help="Remove the label of this key; may be repeated.")
    ] = None,
    notes: Annotated[
        str | None, typer.Option("--notes", help="Notes in place of those that the job has; -: read standard input.")
    ] = None,
    pin: Annotated[
        bool | None,
        typer.Option("--pin/--unpin", help="Keep the job: a pinned job cannot be deleted, and its records do not age."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Change a job's name, labels and notes, or pin it. Its spec stays as it was submitted."""
    if name is None and notes is None and pin is None and not label and not remove_label:
        raise typer.BadParameter("Give at least one of --name, --label, --remove-label, --notes, --pin and --unpin.")
    given = read_labels(label or [])
    text = _read_notes() if notes == "-" else notes
    screen = Screen()
    with Client(url) as client:
        found = client.job(job)
        labels = _labels(found, given, remove_label or []) if label or remove_label else None
        found = client.edit(found.id, name=name, labels=labels, notes=text, pinned=pin)
    if json:
        screen.json(found)
    else:
        screen.out.print(f"{found.id}  {found.name}  {state(found)}")


def _labels(job: Job, given: Mapping[str, str], removed: list[str]) -> dict[str, str]:
    """The job's labels after these changes. Raises InvalidParameter for a key that is to be removed and is not there."""
    missing = next((key for key in removed if key not in job.labels), None)
    if missing is not None:
        remedy = f"See its labels with: shardyard show {job.id}"
        raise InvalidParameter(f"The job has no label {missing[:80]!r}.", field="--remove-label", remedy=remedy)
    kept = {key: value for key, value in job.labels.items() if key not in removed}
    return kept | dict(given)


def _read_notes() -> str:
    """Standard input, up to one character more than notes may have, so that the API refuses longer text."""
    try:
        return sys.stdin.read(LONGEST_NOTES + 1)
    except UnicodeDecodeError:
        remedy = "Convert it to UTF-8."
        raise InvalidParameter("Standard input is not text in UTF-8.", field="--notes", remedy=remedy) from None
