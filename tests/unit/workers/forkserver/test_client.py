import os
from pathlib import Path

import pytest

from shardyard.workers.forkserver import client


def test_other_imports_are_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    name = client.folder_name({"PYTHONPATH": "/a", "HOME": "/x"})
    assert name == client.folder_name({"PYTHONPATH": "/a", "HOME": "/y"})
    assert name != client.folder_name({"PYTHONPATH": "/b"})
    monkeypatch.setattr(client, "fingerprint", lambda: "other code")
    assert name != client.folder_name({"PYTHONPATH": "/a"})


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(client.ForkError):
        client.connect(tmp_path, os.getpid(), {})
