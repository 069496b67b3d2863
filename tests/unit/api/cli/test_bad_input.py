"""What is wrong on a command line or in a variable is said in a line, with what to do: never as a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.cli.main import run

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SHARDYARD_URL", NOWHERE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text("name: tiny\ntrain: {steps: 2, global_batch: 4}\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no database " * 500)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["submit", "~no-such-user/x.yaml"], "no such user"),
        (["submit", "folder"], "Is a directory"),
        (["run", "~no-such-user/x.yaml", "--url", NOWHERE], "no such user"),
        (["submit", "tiny.yaml", "--key", "schl\u00fcssel"], "'schl\u00fcssel' is not an idempotency key"),
        (["submit", "tiny.yaml", "--key", "a\nb"], "is not an idempotency key"),
        (["reshard", "job", "data=[1"], "data=[1: Not YAML"),
        (["reshard", "job", "data=!!python/object:x"], "data=!!python/object:x: Not a spec's YAML"),
        (["reshard", "job", "data=!!seq {a: 1}"], "data=!!seq {a: 1}: Not a spec's YAML"),
        (["reshard", "job", "data=&a [*a]"], "data=&a [*a]: The alias"),
        (["show", "\udcff"], r"'\udcff' is not text in UTF-8"),
        (["export", "~no-such-user/x", "out"], "no such user"),
        (["export", "folder", "~no-such-user/out"], "no such user"),
        (
            ["export", "nothing", "out"],
            "There is no folder nothing, and it cannot be read as a job: No control plane answers",
        ),
        (["init", "--yes", "~no-such-user/job.yaml"], "no such user"),
        (["list", "--url", "http://["], "is not an http or https address"),
        (["list", "--url", "http://127.0.0.1:port"], "is not an http or https address"),
    ],
)
def test_a_bad_command_line(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 1
    said = capsys.readouterr().err
    assert f"error: {expected}" in said or expected in said.splitlines()[0]
    assert "shardyard" in said.splitlines()[-1]


_IN_ASCII = """\
from pathlib import Path
from harness.certificates import certificate
from shardyard.api.cli.commands import verify
from shardyard.api.cli.main import run
from shardyard.service.certificate_signature import signed
from shardyard.service.settings import Settings

verify._write(Path("proof.json"), signed(certificate(), Settings()))
assert run(["init", "--yes", "--command", "python train.py größe", "job.yaml"]) == 0
"""


def test_files_are_in_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_IN_ASCII, encoding="utf-8")
    variables = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "×" in (tmp_path / "proof.json").read_text(encoding="utf-8")
    assert "×" in (tmp_path / "proof.html").read_text(encoding="utf-8")
    assert "größe" in (tmp_path / "job.yaml").read_text(encoding="utf-8")


def test_an_error_has_its_code_and_is_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "job"]) == 1
    assert f"No control plane answers at {NOWHERE}. (unreachable)" in capsys.readouterr().err
    assert run(["show", "job", "--json"]) == 1
    said = json.loads(capsys.readouterr().err)
    assert said["code"] == "unreachable" and said["errors"][0]["remedy"] == "Start one with: shardyard up"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["list", "--json", "--bogus"], "--bogus"), (["logs", "--json"], "JOB"), (["jobbs", "--json"], "jobbs")],
)
def test_a_wrong_command_line_is_json_for_programs(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    said = json.loads(capsys.readouterr().err)
    assert said["code"] == "invalid_request" and named in said["detail"]
    assert run(["list", "--json", "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_letters_that_the_output_cannot_show_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("# \u2192\nname: tiny\ncommand: [python, a.py]\n")
    code = "import sys; from shardyard.api.cli.main import run; sys.exit(run(['schema', '--help']) or print('\u2192'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == b"\\u2192"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nonsense", "The database URL cannot be read."),
        ("", "The database URL cannot be read."),
        ("postgresql+psycopg://me:geheim@127.0.0.1:port/x", "The database URL cannot be read."),
        ("postgresql+psycopg://me:geheim@127.0.0.1:1/x?nonsense=1", 'invalid connection option "nonsense"'),
        ("postgresql+psycopg://me:geheim@127.0.0.1:1/x", "The database does not answer."),
        ("mysql://me:geheim@db/x", "mysql is not a supported database."),
        ("sqlite+aiosqlite://", "must be a file"),
        ("sqlite+aiosqlite:///folder", "/folder' is not a file"),
        ("sqlite+aiosqlite:///a%00b", "is not a file"),
        ("sqlite+aiosqlite:///text", "The database is corrupt, or is not a database."),
        ("sqlite+aiosqlite:////proc/x.db", "The database's file /proc/x.db cannot be made."),
    ],
)
def test_migrating_what_is_no_database(
    url: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", url)
    assert run(["migrate"]) == 1
    said = capsys.readouterr().err
    assert expected in said and "geheim" not in said and "SHARDYARD_DATABASE_URL" in said


@pytest.mark.parametrize("command", ["up", "api", "dispatcher", "down", "migrate", "list", "open", "token"])
def test_a_bad_variable_ends_every_command(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_PORT", "http")
    assert run([command]) == 1
    assert capsys.readouterr().err.startswith("error: SHARDYARD_PORT: ")


@pytest.mark.parametrize("command", [["up"], ["up", "--detach"], ["run", "tiny.yaml"]])
def test_a_data_folder_that_is_a_file(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("SHARDYARD_URL")
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path / "text"))
    assert run(command) == 1
    assert "cannot be made: it is not a folder" in capsys.readouterr().err
