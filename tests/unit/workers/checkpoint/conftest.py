from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.checkpoint.storage import Folder, folder_at


@pytest.fixture(params=["local", "bucket"])
def root(request: Any, tmp_path: Path) -> Folder:
    """An empty folder, of either kind."""
    return folder_at(str(tmp_path) if request.param == "local" else request.getfixturevalue("prefix"))
