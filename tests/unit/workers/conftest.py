import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.snapshot import shared_memory
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at


@pytest.fixture
def fds() -> Iterator[list[int]]:
    """Empty segments of snapshot memory."""
    made = shared_memory.allocate()
    yield made
    for fd in made:
        os.close(fd)


@pytest.fixture(params=["local", "bucket"])
def root(request: Any, tmp_path: Path) -> Folder:
    """An empty folder, of either kind."""
    return folder_at(str(tmp_path) if request.param == "local" else request.getfixturevalue("prefix"))
