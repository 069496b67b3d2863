"""Secrets at rest, in specs, and on their way to a gang."""

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from sqlalchemy import select, update

from shardyard.service import secrets
from shardyard.service.errors import InvalidSpec, SecretsKeyUnusable, TooManySecrets, UnknownSecret
from shardyard.service.jobs import submit as submitting
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.states import State
from shardyard.service.store import tables
from shardyard.service.store.engine import Store
from shardyard.workers.messages.secret import Secret

from ..inprocess_cluster import Gang, InProcessCluster
from .dispatch.dispatching import dispatching, ended, eventually

VALUE = "hf_abcdefgh"


async def submit(store: Store, settings: Settings, *uses: object, env: dict[str, str] | None = None) -> Job:
    spec = {"name": "mine", "command": "true", "secrets": list(uses), "resources": {"env": env or {}}}
    job, _ = await submitting.submit(store, settings, CommandSpec.model_validate(spec), None, "", "tester")
    return job


async def test_values_are_encrypted_replaced_and_removed(store: Store, settings: Settings) -> None:
    first = await secrets.put(store, settings, "TOKEN", VALUE, "ann")
    await secrets.put(store, settings, "OTHER", "another-value", "ann")
    second = await secrets.put(store, settings, "TOKEN", VALUE + "2", "bob")
    assert (second.actor, second.created_at) == ("bob", first.created_at)
    assert [secret.name for secret in await secrets.listed(store)] == ["OTHER", "TOKEN"]
    assert "value" not in second.model_dump()
    async with store.read() as tx:
        rows = (await tx.execute(select(tables.secrets))).mappings().all()
    assert len(rows) == 2 and not any(b"hf_" in row["sealed"] or b"another" in row["sealed"] for row in rows)
    (found,) = await secrets.of_job(store, settings, {"secrets": [{"name": "TOKEN"}]})
    assert found == Secret("TOKEN", VALUE + "2")
    assert [secret.name for secret in await secrets.remove(store, "TOKEN")] == ["OTHER"]
    assert [secret.name for secret in await secrets.remove(store, "TOKEN")] == ["OTHER"]
    made = settings.data_dir / "secrets.key"
    assert made.stat().st_mode & 0o777 == 0o600


@POSTGRESQL_IN_FULL
async def test_a_value_cannot_be_moved_to_another_name(store: Store, settings: Settings) -> None:
    await secrets.put(store, settings, "MINE", VALUE, "ann")
    await secrets.put(store, settings, "SHARED", "public-value", "ann")
    async with store.write() as tx:
        mine = select(tables.secrets.c.sealed).where(tables.secrets.c.name == "MINE").scalar_subquery()
        await tx.execute(update(tables.secrets).where(tables.secrets.c.name == "SHARED").values(sealed=mine))
    with pytest.raises(SecretsKeyUnusable, match="another one"):
        await secrets.of_job(store, settings, {"secrets": [{"name": "SHARED"}]})


async def test_their_number_is_limited(store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST", 2)
    for name in ("A", "B", "A"):
        await secrets.put(store, settings, name, VALUE, "ann")
    with pytest.raises(TooManySecrets):
        await secrets.put(store, settings, "C", VALUE, "ann")


@POSTGRESQL_IN_FULL
async def test_a_spec_names_secrets_that_exist_and_variables_that_are_free(store: Store, settings: Settings) -> None:
    await secrets.put(store, settings, "TOKEN", VALUE, "ann")
    job = await submit(store, settings, "TOKEN", {"name": "TOKEN", "variable": "KEY_FILE", "file": True})
    assert job.spec["secrets"][0] == {"name": "TOKEN", "variable": None, "file": False}
    with pytest.raises(UnknownSecret) as unknown:
        await submit(store, settings, "TOKEN", "NONE")
    assert unknown.value.field == "secrets[1]" and "--set NONE" in (unknown.value.remedy or "")
    for uses, env, field in (
        (["TOKEN", "TOKEN"], {}, "secrets[1]"),
        (["TOKEN"], {"TOKEN": "x"}, "secrets[0]"),
        ([{"name": "TOKEN", "variable": "RANK"}], {}, "secrets[0]"),
        ([{"name": "TOKEN", "variable": "RAY_AUTH_TOKEN"}], {}, "secrets[0]"),
    ):
        with pytest.raises(InvalidSpec) as refused:
            await submit(store, settings, *uses, env=env)
        assert refused.value.field == field, refused.value.message


async def _succeed(gang: Gang) -> None:
    await gang.state("starting")
    await gang.state("running")
    await gang.state("succeeded", "completed")


@POSTGRESQL_IN_FULL
async def test_a_gang_gets_the_secrets_of_its_job(store: Store, settings: Settings) -> None:
    cluster = InProcessCluster(script=_succeed)
    await secrets.put(store, settings, "TOKEN", VALUE, "ann")
    given: list[object] = []
    provide = cluster.provide_secrets

    async def noted(gang: str, values: list[Secret]) -> None:
        given.extend(values)
        await provide(gang, values)

    cluster.provide_secrets = noted  # type: ignore[assignment, method-assign]
    async with dispatching(store, settings, cluster):
        job = await ended(store, await submit(store, settings, "TOKEN"))
        assert job.state == State.SUCCEEDED, job.message
        plain = await ended(store, await submit(store, settings))
        assert plain.state == State.SUCCEEDED
    assert given == [Secret("TOKEN", VALUE)]
    assert VALUE not in str([spec.to_json() for spec in cluster.specs])


async def test_a_job_whose_secret_was_removed_fails_and_says_so(store: Store, settings: Settings) -> None:
    cluster = InProcessCluster(script=_succeed)
    await secrets.put(store, settings, "TOKEN", VALUE, "ann")
    waiting = await submit(store, settings, "TOKEN")
    await secrets.remove(store, "TOKEN")
    async with dispatching(store, settings, cluster):
        job = await ended(store, waiting)
        await eventually(lambda: not cluster.living)
    assert (job.state, job.reason) == (State.FAILED, "secret_unavailable")
    assert "There is no secret TOKEN" in (job.message or "")
