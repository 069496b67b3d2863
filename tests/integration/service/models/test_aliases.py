"""Aliases of models, over both databases: of several changes that expect the same, one is made."""

import asyncio

import pytest

from shardyard.service.model_errors import AliasMoved, InvalidAlias, ModelNotFound, VersionNotFound
from shardyard.service.models import aliases
from shardyard.service.queries import models
from shardyard.service.schemas.model import AliasRequest
from shardyard.service.settings import Settings
from shardyard.service.store.engine import Store

from ..conftest import Submit
from .named import named, saved


@pytest.fixture
async def nano(store: Store, settings: Settings, submit: Submit) -> str:
    """A model with five versions."""
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    for _ in range(5):
        await named(store, "nano", job, step=10)
    return "nano"


async def test_of_changes_at_once_one_is_made_and_the_others_are_refused(store: Store, nano: str) -> None:
    async def moved(version: int) -> int:
        try:
            wanted = AliasRequest(version=version, expected=1)
            return (await aliases.put(store, nano, "best", wanted, f"user {version}")).version
        except AliasMoved as error:
            assert error.field == "expected" and error.remedy
            return 0

    await aliases.put(store, nano, "best", AliasRequest(version=1, expected=0), "ada")
    made = [one for one in await asyncio.gather(*(moved(version) for version in (2, 3, 4, 5))) if one]
    (alias,) = (await models.get_model(store, nano)).aliases
    assert [alias.version] == made and alias.actor == f"user {alias.version}"
    newest = (await models.history(store, nano)).items[0]
    assert (newest.kind, newest.alias, newest.version, newest.before) == ("alias_set", "best", alias.version, 1)


async def test_a_change_that_is_made_already_is_harmless(store: Store, nano: str) -> None:
    first = await aliases.put(store, nano, "best", AliasRequest(version=1, expected=0), "ada")
    assert await aliases.put(store, nano, "best", AliasRequest(version=1, expected=0), "bob") == first
    await aliases.put(store, nano, "best", AliasRequest(version=3), "bob")
    assert (await models.get_version(store, nano, "best")).number == 3
    assert (await models.get_version(store, nano, "3")).aliases == ["best"]
    with pytest.raises(AliasMoved):
        await aliases.remove(store, nano, "best", 1, "ada")
    for _ in range(2):
        assert (await aliases.remove(store, nano, "best", 3, "ada")).aliases == []
    kinds = [one.kind for one in (await models.history(store, nano)).items]
    assert kinds == ["alias_removed", "alias_set", "alias_set", *["version_created"] * 5]


async def test_a_name_that_could_be_something_else_is_refused(store: Store, nano: str) -> None:
    for alias in ("latest", "12", "Best", "-", "a" * 64, ""):
        with pytest.raises(InvalidAlias):
            await aliases.put(store, nano, alias, AliasRequest(version=1), "ada")


async def test_what_is_not_there_cannot_be_named(store: Store, nano: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VersionNotFound):
        await aliases.put(store, nano, "best", AliasRequest(version=6), "ada")
    assert (await models.list_models(store, "\0")).items == [], "no database compares it with a name"
    with pytest.raises(ModelNotFound):
        await aliases.put(store, "lost", "best", AliasRequest(version=1), "ada")
    monkeypatch.setattr(aliases, "MOST", 1)
    await aliases.put(store, nano, "best", AliasRequest(version=1), "ada")
    with pytest.raises(InvalidAlias, match="limit"):
        await aliases.put(store, nano, "worst", AliasRequest(version=1), "ada")
