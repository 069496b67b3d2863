"""Options that several commands share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ..errors import InvalidParameter
from .job_names import job_names

Url = Annotated[
    str | None,
    typer.Option("--url", help="Address of the API. Default: SHARDYARD_URL, else the data folder's control plane."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="A job's id, or a name: the newest job of that name.", autocompletion=job_names),
]
SpecPath = Annotated[str, typer.Argument(metavar="SPEC", help="Job spec, a YAML or JSON file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Values to set in the spec, as in: train.steps=20 resources.device=cpu"
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job ends, and exit with its result.")]
Rank = Annotated[int | None, typer.Option("--rank", min=0, help="Print only this rank's lines.")]


def read_labels(pairs: Sequence[str]) -> dict[str, str]:
    """The labels that --label gives as `key=value`. Raises InvalidParameter for what is none, and for two values of a key."""
    labels: dict[str, str] = {}
    for pair in pairs:
        key, is_pair, value = pair.partition("=")
        if not is_pair:
            raise InvalidParameter(f"{pair[:80]!r} is not key=value.", field="--label", remedy="Such as team=search.")
        if labels.setdefault(key, value) != value:
            raise InvalidParameter(f"No job has two values of {key[:80]!r}.", field="--label", remedy="Give one.")
    return labels
