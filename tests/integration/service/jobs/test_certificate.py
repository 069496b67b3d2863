"""A job has the newest certificate of its own spec, and of no other; it ends with the job."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness.certificates import certificate
from sqlalchemy import func, select, text

from shardyard.service.certificate_errors import CertificateMismatch, CertificateNotFound, InvalidCertificate
from shardyard.service.certificate_signature import fingerprint, signed
from shardyard.service.jobs.certificate import attach
from shardyard.service.jobs.reshard import reshard
from shardyard.service.queries.certificates import of_job
from shardyard.service.queries.jobs import get_job
from shardyard.service.schemas.certificate import Certificate
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.store import certificates as stored
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.removals import OF_JOBS
from shardyard.service.store.spec_tables import certificates

from ..conftest import Submit

#: Whether another session of this database waits for a lock.
WAITING = """SELECT 1 FROM pg_locks WHERE NOT granted AND pid IN (
    SELECT pid FROM pg_locks JOIN pg_database ON oid = database WHERE datname = current_database())"""


def proof(settings: Settings, **fields: Any) -> Certificate:
    return signed(certificate(**fields), settings)


async def test_the_newest_one_counts(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(name="a")
    assert job.certificate is None
    with pytest.raises(CertificateNotFound, match="has no certificate"):
        await of_job(store, job.id)
    train = job.spec["train"]
    first = proof(settings, given=train, equal=False)
    for _ in range(2):
        found = (await attach(store, job.name, first, "ann")).certificate
        assert found is not None and (found.equal, found.actor, found.layout) == (False, "ann", first.layout)
    second = proof(settings, given=train, made_at=2.5)
    await attach(store, job.id, second, "ben")
    found = (await get_job(store, job.id)).certificate
    assert found is not None and (found.equal, found.actor, found.key) == (True, "ben", fingerprint(second))
    assert await of_job(store, job.name) == second
    async with store.read() as tx:
        assert (await tx.execute(select(func.count()).select_from(certificates))).scalar_one() == 1
    assert certificates in OF_JOBS  # it is removed with its job


async def test_a_job_says_what_its_one_process_did_besides(store: Store, settings: Settings, submit: Submit) -> None:
    layout = {"data": 2, "zero": 1, "zero_plus_plus": {"gradients": "int8"}}
    for name, given, extra in (("plain", {"data": 2}, None), ("rounded", layout, "rounds the same blocks")):
        job = await submit(name=name, layout=given)
        found = (await attach(store, job.id, proof(settings, given=job.spec["train"]), "ann")).certificate
        assert found is not None and found.extra == extra
    async with store.write() as tx:  # as an earlier version stored it
        gone = {**job.spec, "train": {**job.spec["train"], "layout": {**layout, "gone": 1}}}
        await job_rows.set_columns(tx, job.id, {"spec": gone})
    found = (await get_job(store, job.id)).certificate
    assert found is not None and (found.equal, found.extra) == (True, None)


async def test_what_proves_nothing_of_the_job_is_refused(
    store: Store, settings: Settings, submit: Submit, tmp_path: Path
) -> None:
    job = await submit(name="a")
    right = proof(settings, given=job.spec["train"])
    with pytest.raises(InvalidCertificate, match="not what was signed"):
        await attach(store, job.id, right.model_copy(update={"equal": False}), "ann")
    with pytest.raises(InvalidCertificate, match="no signature"):
        await attach(store, job.id, right.model_copy(update={"signature": None}), "ann")
    for given in ({**job.spec["train"], "seed": 7}, {"no": "spec"}):
        with pytest.raises(CertificateMismatch, match="not of the spec") as refused:
            await attach(store, job.id, proof(settings, given=given), "ann")
        assert job.id in (refused.value.remedy or "")
    assert (await get_job(store, job.id)).certificate is None


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_certificate_waits_for_a_change_of_the_layout_that_is_not_stored_yet(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(name="a")
    changed = {**job.spec, "train": {**job.spec["train"], "seed": 7}}
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"spec": changed})
        attaching = asyncio.create_task(attach(store, job.id, proof(settings, given=job.spec["train"]), "ann"))
        await asyncio.wait({attaching}, timeout=0.5)
    with pytest.raises(CertificateMismatch):
        await attaching
    assert (await get_job(store, job.id)).certificate is None


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_change_of_the_layout_removes_a_certificate_that_is_not_stored_yet(
    store: Store, settings: Settings, submit: Submit
) -> None:
    first = JobSpec.model_validate((await submit(name="a", ranks=2)).spec)
    other = JobSpec.model_validate(
        {**first.model_dump(), "train": {**first.model_dump()["train"], "layout": {"tensor": 2}}}
    )
    job = await reshard(store, settings, "a", other, "ben")
    proven = proof(settings, given=job.spec["train"])
    key, document = fingerprint(proven), proven.model_dump_json()
    async with store.write() as tx:
        await job_rows.lock(tx, job.id)
        row = {"actor": "ann", "made_at": 1.0, "equal": True, "layout": proven.layout, "key": key, "document": document}
        await stored.put(tx, job.id, **row)
        changing = asyncio.create_task(reshard(store, settings, job.id, first, "ben"))
        for _ in range(1000):  # until it waits for the job's row
            if (await tx.execute(text(WAITING))).first():
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail("nothing waited for the job")
    await changing
    assert (await get_job(store, job.id)).certificate is None
