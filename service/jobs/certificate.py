"""Attaches a certificate to a job, if it is signed and of the job's own spec."""

from collections.abc import Mapping
from typing import Any

from ...workers.spec import TrainSpec
from ..certificate_errors import CertificateMismatch, InvalidCertificate
from ..certificate_signature import SignatureInvalid, fingerprint
from ..queries.jobs import existing, get_job
from ..schemas.certificate import Certificate
from ..schemas.job import Job
from ..store import certificates as rows
from ..store import jobs
from ..store.engine import Store


async def attach(store: Store, job: str, certificate: Certificate, actor: str) -> Job:
    """Store the certificate as the job's, in place of an earlier one. Repeating is harmless.

    Raises JobNotFound, JobDeleted, InvalidCertificate for a wrong signature, and CertificateMismatch for one of another spec.
    """
    try:
        key = fingerprint(certificate)
    except SignatureInvalid as error:
        remedy = "Make another with: shardyard verify --job JOB"
        raise InvalidCertificate(str(error), field="signature", remedy=remedy) from None
    async with store.write() as tx:
        found = (await existing(tx, job))["id"]
        await jobs.lock(tx, found)  # a change of its layout comes before, or removes the certificate
        row = await existing(tx, found)
        _refuse_another(row["id"], row["spec"].get("train"), certificate)
        await rows.put(
            tx,
            row["id"],
            actor=actor,
            made_at=certificate.made_at,
            equal=certificate.equal,
            layout=certificate.layout,
            key=key,
            document=certificate.model_dump_json(),
        )
    return await get_job(store, row["id"])


def _refuse_another(job: str, train: Mapping[str, Any] | None, certificate: Certificate) -> None:
    """Raises CertificateMismatch unless both are one spec; what one of them leaves out may be the other's default."""
    if train is None:
        remedy = "Only a job with `train` has a certificate."
        raise CertificateMismatch(f"{job} runs a command.", field="job", remedy=remedy)
    try:
        same = TrainSpec.model_validate(train) == TrainSpec.model_validate(certificate.given)
    except ValueError:
        same = False
    if not same:
        remedy = f"Make one of this job's spec with: shardyard verify --job {job}"
        raise CertificateMismatch(f"The certificate is not of the spec of {job}.", field="given", remedy=remedy)
