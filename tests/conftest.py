"""What tests of several floors share."""

import uuid
from collections.abc import Iterator

import pytest
from harness.bucket import Buckets, running_buckets
from harness.postgres import Postgres, running_postgres

BUCKET = "checkpoints"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One real PostgreSQL server, started by the first who asks; it is stopped and deleted when the session ends."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def buckets() -> Iterator[Buckets]:
    """A server that speaks S3, with one bucket; who kills it starts it again."""
    with running_buckets(BUCKET) as server:
        yield server


@pytest.fixture
def prefix(buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a prefix of the bucket that is this test's own, which this process may use."""
    for name, value in buckets.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
