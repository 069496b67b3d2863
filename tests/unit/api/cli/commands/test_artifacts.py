"""`shardyard artifacts` downloads one file of a name that was logged at several steps, or all that can be placed."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import artifacts as command
from shardyard.api.cli.main import run
from shardyard.api.client import ApiError
from shardyard.api.client.transport import Unreachable
from shardyard.service.schemas.artifact import LoggedArtifact, LoggedArtifacts

_DIGEST = "0" * 64


class Service(ClientStandIn):
    """A client of a service whose newest job `train` is at first job-1, and then another one."""

    logged: list[tuple[str, int | None]]
    asked: list[tuple[str, int | None]]
    error: ApiError | None
    jobs: list[str]

    def job(self, name: str) -> SimpleNamespace:
        assert name == "train"
        return SimpleNamespace(id=self.jobs.pop(0))

    def artifacts(self, job: str, *, prefix: str, **_: object) -> LoggedArtifacts:
        assert job == "job-1"
        known = {"type": "file", "media_type": "", "bytes": 1, "sha256": _DIGEST, "rank": 0, "at": 1.0}
        found = [(name, step) for name, step in self.logged if name.startswith(prefix)]
        items = [LoggedArtifact.model_validate({"name": name, "step": step, **known}) for name, step in found]
        return LoggedArtifacts(items=items, next=None)

    def download_artifact(self, job: str, name: str, to: Path, *, step: int | None, digest: str) -> Path:
        assert (job, digest) == ("job-1", _DIGEST)
        self.asked.append((name, step))
        if name == "changed" and self.error is not None:
            raise self.error
        to.parent.mkdir(parents=True, exist_ok=True)
        place = to / name if to.is_dir() else to
        place.write_text(name)
        return place


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> type[Service]:
    monkeypatch.setattr(command, "Client", Service)
    logged = [("out/loss", 10), ("out/loss", 20), ("out/loss", 100), ("out/losses", 200)]
    for name, value in {"logged": logged, "asked": [], "error": None, "jobs": ["job-1", "job-2"]}.items():
        monkeypatch.setattr(Service, name, value, raising=False)
    return Service


@pytest.mark.parametrize(("options", "step"), [([], 100), (["--step", "20"], 20)])
def test_one_file_is_downloaded(
    options: list[str], step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["artifacts", "train", "--download", "out/loss", "--to", str(tmp_path), *options]) == 0
    assert Service.asked == [("out/loss", step)]
    assert capsys.readouterr().out.split() == [str(tmp_path / f"out/loss.step-{step}")]


def test_a_file_that_cannot_be_placed_is_reported_and_the_others_are_downloaded(
    service: type[Service], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file and a folder of one name, a name that its step makes too long, and a folder where a file is to be."""
    (tmp_path / "taken").mkdir()
    service.logged = [("eval", None), ("eval/a b.txt", 3), ("x" * 250, 1000), ("taken", None), ("z.txt", None)]
    assert run(["artifacts", "train", "--all", "--to", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out.split() == [str(tmp_path / place) for place in ("eval", "taken/taken", "z.txt")]
    assert printed.err.count("cannot be placed at") == 2
    assert "shardyard artifacts job-1 --download 'eval/a b.txt' --step 3 --to DIR" in printed.err


@pytest.mark.parametrize("code", ["checkpoint_changed", "artifact_not_found"])
def test_a_file_that_was_logged_again_meanwhile_is_reported(
    service: type[Service], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.logged, service.error = [("changed", None), ("z.txt", None)], ApiError(code, "It is another one.", 404)
    assert run(["artifacts", "train", "--all", "--json", "--to", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == [{"name": "z.txt", "step": None, "path": str(tmp_path / "z.txt")}]
    assert json.loads(printed.err)["detail"] == "changed: It is another one."


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_was_placed_before_the_control_plane_went_away_is_printed(
    service: type[Service], options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.logged = [("a.txt", None), ("changed", None), ("z.txt", None)]
    service.error = Unreachable("http://x", "refused")
    assert run(["artifacts", "train", "--all", "--to", str(tmp_path), *options]) == 1
    printed = capsys.readouterr()
    assert str(tmp_path / "a.txt") in printed.out and "No control plane answers" in printed.err
    assert [name for name, _ in service.asked] == ["a.txt", "changed"]
