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
        (["--set", "PIPED"], "Standard input is not text in UTF-8"),
        (["--set", "a b"], "name"),
    ):
        piped = b"\xff\xfe" if "PIPED" in arguments else b"line one\n"
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped), encoding="utf-8"))
        assert run(["secrets", *arguments, *url]) != 0
        assert says in capsys.readouterr().err
    assert run(["secrets", "--remove", "TOKEN", *url]) == 0
    assert [secret.name for secret in client.secrets()] == ["KEY"]


@pytest.mark.parametrize(("errors", "value"), [("surrogateescape", b"\xff"), ("strict", b"a\r\nb\r")])
def test_a_value_is_taken_as_it_is_or_refused(
    errors: str, value: bytes, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the locale C standard input has surrogates. A file's ends of lines are kept."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(value), encoding="utf-8", errors=errors))
    sent: list[str] = []
    monkeypatch.setattr(Client, "set_secret", lambda _, name, value: sent.append(value))
    (tmp_path / "value").write_bytes(value)
    if errors == "surrogateescape":
        assert run(["secrets", "--set", "KEY", "--url", client.url]) == 1 and sent == []
    else:
        run(["secrets", "--set", "KEY", "--from-file", str(tmp_path / "value"), "--url", client.url])
        assert sent == ["a\r\nb\r"]
