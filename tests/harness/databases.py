"""Databases with the newest schema, copied from one that was migrated once per process: a copy costs a hundredth of the migrations."""

import asyncio
import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from shardyard.service.store.schema import upgrade

#: For tests of what is decided, in files of which other tests try the same statements on both databases.
POSTGRESQL_IN_FULL = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)


def migrate(url: str) -> None:
    """`upgrade`, in a loop of its own, whether or not one runs already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, upgrade(url)).result()


@functools.cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "template.db")
        migrate(f"sqlite+aiosqlite:///{file}")
        return file.read_bytes()


def migrated_sqlite(url: str) -> str:
    """Put a migrated database where the SQLite `url` says, unless there is one; returns the url."""
    file = Path(make_url(url).database or "")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_migrated_file())
    return url
