"""Where a rank's processes find its secrets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardyard.workers.messages.secret import Secret
from shardyard.workers.trainer import secrets


def test_variables_and_files_reach_the_programs_and_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "before")
    monkeypatch.setenv("KEY_FILE", "")
    secrets.place([Secret("TOKEN", "hf_abcdefgh"), Secret("KEY_FILE", "line one\nline twö\r\n", file=True)])
    path = Path(os.environ["KEY_FILE"])
    assert path.is_relative_to(f"/proc/{os.getpid()}/fd") and "memfd" in str(path.readlink())
    reads = "import os; print(os.environ['TOKEN']); print(open(os.environ['KEY_FILE'], 'rb').read())"
    for _ in range(2):  # each reader begins at the start
        printed = subprocess.run([sys.executable, "-c", reads], capture_output=True, text=True, check=True).stdout
        assert printed.splitlines() == ["hf_abcdefgh", str("line one\nline twö\r\n".encode())]
    with pytest.raises(OSError, match="not permitted"):
        os.truncate(path, 3)
    assert path.stat().st_mode & 0o777 == 0o400


def test_a_value_is_not_in_what_is_shown_of_it() -> None:
    secret = Secret("TOKEN", "hf_abcdefgh")
    assert "hf_abcdefgh" not in repr(secret) and Secret.from_json(secret.to_json()) == secret
