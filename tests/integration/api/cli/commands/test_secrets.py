"""`shardyard secrets`."""

import io
import json
from pathlib import Path

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client


def test_the_command_line_takes_a_value_from_a_file_or_from_standard_input(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("line one\nline two\n")
    (tmp_path / "binary").write_bytes(b"\xff" * 20)
    url = ["--url", client.url]
    assert run(["secrets", "--set", "KEY", "--from-file", str(tmp_path / "key"), "--json", *url]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["KEY"]
    monkeypatch.setattr("sys.stdin", io.StringIO("line one\n"))
    assert run(["secrets", "--set", "TOKEN", *url]) == 0
    printed = capsys.readouterr()
    assert "KEY" in printed.out and "TOKEN" in printed.out and "secrets: [TOKEN]" in printed.err
    assert "line one" not in printed.out + printed.err
    for arguments, says in (
        (["--remove", "NONE"], "no secret 'NONE'"),
        (["--from-file", "x"], "--from-file needs --set"),
        (["--set", "KEY", "--from-file", str(tmp_path / "binary")], "not text in UTF-8"),
        (["--set", "KEY", "--from-file", str(tmp_path / "none")], "none"),
        (["--set", "a b"], "name"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO("line one\n"))
        assert run(["secrets", *arguments, *url]) != 0
        assert says in capsys.readouterr().err
    assert run(["secrets", "--remove", "TOKEN", *url]) == 0
    assert [secret.name for secret in client.secrets()] == ["KEY"]
