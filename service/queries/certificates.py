"""Reads the certificate of a job."""

from ..certificate_errors import CertificateNotFound
from ..schemas.certificate import Certificate
from ..store import certificates as rows
from ..store.engine import Store
from .jobs import existing


async def of_job(store: Store, job: str) -> Certificate:
    """The certificate of the job of this id or name. Raises JobNotFound, JobDeleted, CertificateNotFound."""
    async with store.read() as tx:
        row = await existing(tx, job)
        document = await rows.document(tx, row["id"])
    if document is None:
        remedy = f"Make one with: shardyard verify --job {row['id']}"
        raise CertificateNotFound(f"{row['id']} has no certificate.", remedy=remedy)
    return Certificate.model_validate_json(document)
