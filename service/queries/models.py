"""Reads the model registry: pages of models and versions, and the version that a reference names."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..errors import CheckpointDeleted, ResumeMismatch
from ..model_errors import ModelNotFound, VersionNotFound
from ..schemas.model import (
    LATEST,
    LONGEST,
    Model,
    ModelAlias,
    ModelChange,
    ModelHistory,
    Models,
    ModelVersion,
    ModelVersions,
    Reference,
)
from ..store import artifacts
from ..store import models as rows
from ..store.engine import Store


async def list_models(store: Store, after: str | None = None, limit: int = 50) -> Models:
    """One page of models that have versions, by name."""
    if after is not None and "\0" in after:
        return Models(items=[])
    async with store.read() as tx:
        found = await rows.page(tx, after, limit + 1)
        items = await _models(tx, found[:limit])
    return Models(items=items, next=items[-1].name if len(found) > limit else None)


async def get_model(store: Store, name: str) -> Model:
    """Raises ModelNotFound."""
    async with store.read() as tx:
        (found,) = await _models(tx, [await existing(tx, name)])
    return found


async def list_versions(store: Store, name: str, before: int | None = None, limit: int = 50) -> ModelVersions:
    """One page of a model's versions, newest first. Raises ModelNotFound."""
    async with store.read() as tx:
        await existing(tx, name)
        found = await rows.versions_before(tx, name, before, limit + 1)
        items = await described(tx, found[:limit])
    return ModelVersions(items=items, next=items[-1].number if len(found) > limit else None)


async def get_version(store: Store, name: str, which: str) -> ModelVersion:
    """A version by its number or an alias. Raises ModelNotFound, VersionNotFound."""
    async with store.read() as tx:
        (found,) = await described(tx, [await resolved(tx, Reference(name, which))])
    return found


async def history(store: Store, name: str, before: int | None = None, limit: int = 50) -> ModelHistory:
    """One page of a model's changes, newest first. Raises ModelNotFound."""
    async with store.read() as tx:
        await existing(tx, name)
        found = await rows.history(tx, name, before, limit + 1)
    items = [_change(row) for row in found[:limit]]
    return ModelHistory(items=items, next=items[-1].position if len(found) > limit else None)


async def existing(tx: AsyncConnection, name: str) -> RowMapping:
    """The model's row, with its newest version's number as `latest`. Raises ModelNotFound."""
    row = None if "\0" in name or len(name) > LONGEST else await rows.get(tx, name)
    if row is None:
        raise ModelNotFound(
            f"There is no model {name[:80]!r}.", field="name", remedy="See which there are with: shardyard models"
        )
    return row


async def resolved(tx: AsyncConnection, reference: Reference, field: str = "version") -> RowMapping:
    """The row of the version that a reference names. Raises ModelNotFound, VersionNotFound."""
    model = await existing(tx, reference.model)
    number = reference.number
    if number is None and reference.which != LATEST and "\0" not in reference.which:
        alias = await rows.alias(tx, model["name"], reference.which)
        number = None if alias is None else int(alias["number"])
    elif reference.which == LATEST:
        number = model["latest"]
    row = None if number is None else await rows.version(tx, model["name"], number)
    if row is None:
        message = f"The model {model['name']} has no version {reference.which[:80]!r}."
        remedy = f"See its versions and aliases with: shardyard models {model['name']}"
        raise VersionNotFound(message, field=field, remedy=remedy)
    return row


async def to_resume(tx: AsyncConnection, text: str | None, field: str) -> RowMapping | None:
    """The version that `resume_from` names; None if it names no model.

    Raises ModelNotFound, VersionNotFound, ResumeMismatch, CheckpointDeleted.
    """
    reference = Reference.parse(text or "")
    if reference is None:
        return None
    row = await resolved(tx, reference, field)
    if row["artifact"] is not None:
        message = f"{row['model']}@{row['number']} is a file that a program logged, and no checkpoint."
        raise ResumeMismatch(message, field=field, remedy="Name a version that was created from a checkpoint.")
    (version,) = await described(tx, [row])
    if version.state == "deleted":
        message = (
            f"The checkpoint of {row['model']}@{row['number']} was deleted, or another save of its step replaced it."
        )
        remedy = f"Name another version: shardyard models {row['model']}"
        raise CheckpointDeleted(message, field=field, remedy=remedy)
    return row


def pinned_text(row: RowMapping) -> str:
    """The version as a reference that always names the same one."""
    return str(Reference(row["model"], str(row["number"])))


async def described(tx: AsyncConnection, found: Sequence[RowMapping]) -> list[ModelVersion]:
    """Versions with their aliases and the states of their files."""
    checkpoints, files = await rows.checkpoints_of(tx, found), await rows.files_of(tx, found)
    named: dict[tuple[str, int], list[str]] = {}
    for alias in await rows.aliases_of(tx, {row["model"] for row in found}):
        named.setdefault((alias["model"], alias["number"]), []).append(alias["alias"])
    same = ("model", "number", "artifact", "path", "digest", "trained", "metrics", "notes", "actor", "created_at")
    made = []
    for row in found:
        if row["artifact"] is None:
            state, digest = checkpoints.get((row["source"], row["step"]), ("deleted", None))
            pinned = digest is not None
            if pinned and row["digest"] not in (None, digest):  # a later save of the step has replaced its files
                state = "deleted"
        else:  # it is kept with its job; a program may have logged another one in its place
            state = (
                "present" if files.get((row["source"], row["artifact"], row["step"])) == row["digest"] else "deleted"
            )
            pinned = True
        step = None if row["step"] == artifacts.NO_STEP else row["step"]
        values: dict[str, Any] = {name: row[name] for name in same}
        aliases = named.get((row["model"], row["number"]), [])
        made.append(ModelVersion(**values, job=row["source"], step=step, state=state, pinned=pinned, aliases=aliases))
    return made


async def _models(tx: AsyncConnection, found: Sequence[RowMapping]) -> list[Model]:
    named: dict[str, list[ModelAlias]] = {}
    for row in await rows.aliases_of(tx, [one["name"] for one in found]):
        named.setdefault(row["model"], []).append(alias_of(row))
    same = ("name", "latest", "actor", "created_at")
    return [Model(**{name: one[name] for name in same}, aliases=named.get(one["name"], [])) for one in found]


def _change(row: RowMapping) -> ModelChange:
    return ModelChange(position=row["position"], kind=row["kind"], actor=row["actor"], at=row["ts"], **row["data"])


def alias_of(row: RowMapping) -> ModelAlias:
    return ModelAlias(
        model=row["model"], alias=row["alias"], version=row["number"], actor=row["actor"], set_at=row["set_at"]
    )
