"""A path for a SQLite file, and a disk that can be filled."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.disk import SmallDisk


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a folder?#%41" / "shardyard.db"


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    try:
        disk = SmallDisk()
    except OSError as reason:
        pytest.skip(str(reason))
    try:
        yield disk
    finally:
        disk.end()
