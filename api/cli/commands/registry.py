"""`shardyard models`: the model registry, listed and changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from ....service.schemas.model import Model, ModelVersion, Reference
from ...client import Client
from ...client.artifact_file import place_below
from ..options import Json, Url
from ..terminal.screen import Screen, age
from .models import refuse_gone

_PAGE: Final = 200
#: Versions that are shown without --all.
_SHOWN: Final = 20


def models(  # noqa: PLR0913, PLR0917 - an option each
    model: Annotated[
        str | None, typer.Argument(metavar="[NAME[@VERSION]]", help="A model; after @ a version's number or an alias.")
    ] = None,
    create: Annotated[
        str | None, typer.Option("--create", metavar="JOB[@STEP]", help="Name a job's checkpoint as the next version.")
    ] = None,
    artifact: Annotated[
        str | None, typer.Option("--artifact", help="With --create: a file that the job logged, not a checkpoint.")
    ] = None,
    notes: Annotated[str | None, typer.Option("--notes", help="With --create: plain text.")] = None,
    set_alias: Annotated[str | None, typer.Option("--set-alias", help="Let this alias name NAME@VERSION.")] = None,
    remove_alias: Annotated[
        str | None, typer.Option("--remove-alias", metavar="ALIAS", help="Remove an alias.")
    ] = None,
    expected: Annotated[
        int | None,
        typer.Option("--expected", min=0, help="With an alias: the version it names now, 0 for none; else refuse."),
    ] = None,
    delete: Annotated[int | None, typer.Option("--delete", min=1, metavar="NUMBER", help="Delete a version.")] = None,
    download: Annotated[
        Path | None, typer.Option("--download", metavar="DIR", help="Download the version's files into this folder.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show all versions, and not only the newest 20.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List models; show one with its versions and aliases; create, name, download or delete a version."""
    screen = Screen()
    if model is None and any((create, artifact, notes, set_alias, remove_alias, expected, delete, download)):
        raise typer.BadParameter("These options need the name of a model.")
    if create is None and (artifact or notes):
        raise typer.BadParameter("--artifact and --notes need --create JOB.")
    with Client(url) as client:
        if model is None:
            _list(screen, client, json)
            return
        name, _, which = model.partition("@")
        if create is not None:
            which = str(_create(client, name, create, artifact, notes).number)
        if set_alias is not None:
            client.set_alias(name, set_alias, client.model_version(name, which or "latest").number, expected=expected)
        _remove(client, name, remove_alias, expected, delete)
        if download is not None:
            _download(screen, client, client.model_version(name, which or "latest"), download, as_json=json)
        elif which and which not in (remove_alias, str(delete)):  # those are not there any more
            _show_version(screen, client.model_version(name, which), json)
        else:
            _show(screen, client, name, everything=all_, as_json=json)


def _remove(client: Client, name: str, alias: str | None, expected: int | None, version: int | None) -> None:
    if alias is not None:
        client.remove_alias(name, alias, expected=expected)
    if version is not None:
        client.delete_version(name, version)


def _create(client: Client, name: str, source: str, artifact: str | None, notes: str | None) -> ModelVersion:
    job, _, step = source.partition("@")
    if step and not (step.isascii() and step.isdecimal()):
        raise typer.BadParameter("--create takes JOB or JOB@STEP, with a number as the step.")
    return client.create_version(name, job, step=int(step) if step else None, artifact=artifact, notes=notes)


def _list(screen: Screen, client: Client, as_json: bool) -> None:
    found = list(_all_models(client))
    if as_json:
        screen.json([one.model_dump(mode="json") for one in found])
        return
    screen.table(("NAME", "LATEST", "ALIASES", "CREATED BY", "AGE"), [_row(one) for one in found])
    if not found:
        screen.hint("No models. Create the first version with: shardyard models NAME --create JOB@STEP")


def _all_models(client: Client) -> Iterator[Model]:
    after: str | None = None
    while True:
        page = client.models(after=after, limit=_PAGE)
        yield from page.items
        after = page.next
        if after is None:
            return


def _row(one: Model) -> tuple[str, ...]:
    aliases = ", ".join(f"{alias.alias} → {alias.version}" for alias in one.aliases)
    return (one.name, "" if one.latest is None else str(one.latest), aliases, escape(one.actor), age(one.created_at))


def _show(screen: Screen, client: Client, name: str, *, everything: bool, as_json: bool) -> None:
    found = client.model(name)
    versions: list[ModelVersion] = []
    before: int | None = None
    more = True
    while more and (everything or not versions):
        page = client.model_versions(name, before=before, limit=_PAGE if everything else _SHOWN)
        versions += page.items
        before, more = page.next, page.next is not None
    if as_json:
        screen.json({**found.model_dump(mode="json"), "items": [one.model_dump(mode="json") for one in versions]})
        return
    columns = ("VERSION", "ALIASES", "FROM", "STATE", "CREATED BY", "AGE", "NOTES")
    screen.table(columns, [_version_row(one) for one in versions])
    if more:
        screen.hint(f"Older ones with: shardyard models {name} --all")


def _version_row(one: ModelVersion) -> tuple[str, ...]:
    first = one.notes.partition("\n")[0][:60]
    cells = (str(one.number), ", ".join(one.aliases), _source(one), _state(one), one.actor, age(one.created_at), first)
    return tuple(map(escape, cells))


def _source(one: ModelVersion) -> str:
    at = "" if one.step is None else f"@{one.step}"
    return f"{one.job}{at}" if one.artifact is None else f"{one.artifact} of {one.job}{at}"


def _state(one: ModelVersion) -> str:
    return f"{one.state}, not pinned yet" if one.state == "present" and not one.pinned else one.state


def _show_version(screen: Screen, one: ModelVersion, as_json: bool) -> None:
    if as_json:
        screen.json(one)
        return
    metrics = ", ".join(f"{name} {value:.5g}" for name, value in one.metrics.items() if value is not None)
    screen.facts(
        f"{one.model}@{one.number}",
        [
            ("aliases", ", ".join(one.aliases)),
            ("from", _source(one)),
            ("state", _state(one)),
            ("path", one.path),
            ("digest", one.digest),
            ("metrics", metrics),
            ("created", f"by {one.actor}, {age(one.created_at)} ago"),
        ],
    )
    screen.paragraph("notes", one.notes)
    if one.state == "present" and not one.pinned:
        screen.hint(f"A save may remove it. If this lasts, pin it: shardyard checkpoints {one.job} --pin {one.step}")
    if one.artifact is None:
        screen.hint(f"Continue from it with resume_from: {Reference(one.model, str(one.number))}")


def _download(screen: Screen, client: Client, one: ModelVersion, to: Path, *, as_json: bool) -> None:
    """Download the files of a version, which must be those that it was created from. Raises ApiError, UnknownCheckpoint."""
    refuse_gone(one, "--download")
    if one.artifact is None:
        assert one.step is not None
        placed = client.download_checkpoint(one.job, one.step, to, digest=one.digest)
    else:
        place = place_below(to, one.artifact.rpartition("/")[2])
        placed = [client.download_artifact(one.job, one.artifact, place, step=one.step, digest=one.digest)]
    if as_json:
        screen.json([str(path) for path in placed])
        return
    for path in placed:
        screen.line(str(path))
