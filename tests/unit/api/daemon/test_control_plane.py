"""What the API process does before it listens."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardyard.api.daemon import control_plane
from shardyard.service.settings import Settings


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "insecure_allow_remote": True}, False),
        ({"host": "127.0.0.1", "insecure_allow_remote": True}, True),
        ({"host": "0.0.0.0", "token": "x" * 40}, False),
    ],
    ids=["token-made", "no-token", "loopback", "token-given"],
)
def test_the_data_folder_is_closed_where_a_token_is_made_in_it(
    more: dict[str, Any], closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod it is a volume of another user, which cannot be closed: an API without tokens keeps nothing there."""

    async def serve(*_: object) -> int:
        return 0

    monkeypatch.setattr(control_plane, "_api", serve)
    monkeypatch.setattr(control_plane, "_log_to_stderr", lambda: None)
    tmp_path.chmod(0o755)
    settings = Settings(data_dir=tmp_path, database_url="postgresql+psycopg://u:p@127.0.0.1:1/x", **more)
    assert control_plane.run_api(settings, None, lambda _: None) == 0
    assert (stat.S_IMODE(tmp_path.stat().st_mode) == 0o700) is closed
