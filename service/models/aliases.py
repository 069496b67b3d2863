"""Sets and removes aliases of models: one statement of intent, compared with what the alias names now under the model's lock."""

import re
import time
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..model_errors import AliasMoved, InvalidAlias
from ..queries import models
from ..schemas.model import LATEST, LONGEST, PATTERN, AliasRequest, Model, ModelAlias, Reference
from ..store import models as rows
from ..store.engine import Store

#: Aliases that a model may have.
MOST: Final = 100


async def put(store: Store, model: str, alias: str, wanted: AliasRequest, actor: str) -> ModelAlias:
    """Let an alias name a version. Harmless if repeated. Raises InvalidAlias, ModelNotFound, VersionNotFound, AliasMoved."""
    _check(alias)
    async with store.write() as tx:
        row = await _locked(tx, model, alias)
        await models.resolved(tx, Reference(model, str(wanted.version)))
        if row is not None and row["number"] == wanted.version:
            return models.alias_of(row)
        _compare(model, alias, row, wanted.expected)
        if row is None and await rows.count_aliases(tx, model) >= MOST:
            remedy = f"Remove one: shardyard models {model} --remove-alias ALIAS"
            raise InvalidAlias(f"{model} has {MOST} aliases, which is the limit.", field="alias", remedy=remedy)
        now = time.time()
        changed = await rows.set_alias(tx, model, alias, {"number": wanted.version, "actor": actor, "set_at": now})
        before = None if row is None else row["number"]
        await _note(tx, model, "alias_set", {"version": wanted.version, "alias": alias, "before": before}, actor)
        return models.alias_of(changed)


async def remove(store: Store, model: str, alias: str, expected: int | None, actor: str) -> Model:
    """Remove an alias. Harmless if there is none. Raises ModelNotFound, AliasMoved."""
    async with store.write() as tx:
        row = await _locked(tx, model, alias)
        if row is not None:
            _compare(model, alias, row, expected)
            await rows.remove_alias(tx, model, alias)
            await _note(tx, model, "alias_removed", {"version": row["number"], "alias": alias}, actor)
    return await models.get_model(store, model)


def _check(alias: str) -> None:
    if not re.fullmatch(PATTERN, alias) or len(alias) > LONGEST or alias == LATEST or alias.isdecimal():
        remedy = f"Use up to {LONGEST} lower-case letters, digits and dashes, not only digits, and not {LATEST}."
        raise InvalidAlias(f"{alias[:80]!r} cannot be an alias.", field="alias", remedy=remedy)


async def _locked(tx: AsyncConnection, model: str, alias: str) -> RowMapping | None:
    await models.existing(tx, model)
    await rows.lock(tx, model)
    return None if "\0" in alias else await rows.alias(tx, model, alias)


def _compare(model: str, alias: str, row: RowMapping | None, expected: int | None) -> None:
    """Raise AliasMoved if the alias names another version than the expected one (0: there is none)."""
    now = 0 if row is None else int(row["number"])
    if expected is not None and now != expected:
        found = f"names version {now}" if now else "does not exist"
        remedy = f"Read it again: shardyard models {model}"
        raise AliasMoved(
            f"The alias {alias} of {model} {found}, and not version {expected}.", field="expected", remedy=remedy
        )


async def _note(tx: AsyncConnection, model: str, kind: str, data: dict[str, Any], actor: str) -> None:
    await rows.note(tx, model, {"kind": kind, "data": data, "actor": actor, "ts": time.time()})
