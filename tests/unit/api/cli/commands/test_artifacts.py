"""`shardyard artifacts --download` downloads one file of a name that was logged at several steps."""

from pathlib import Path

import pytest
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import artifacts as command
from shardyard.api.cli.main import run
from shardyard.service.schemas.artifact import LoggedArtifact, LoggedArtifacts


class Service(ClientStandIn):
    """A client of a service that has one name at three steps. A longer name begins with it."""

    asked: list[tuple[str, int | None]]

    def artifacts(self, _job: str, *, prefix: str, **_: object) -> LoggedArtifacts:
        assert prefix == "out/loss"
        known = {"type": "file", "media_type": "", "bytes": 1, "sha256": "0" * 64, "rank": 0, "at": 1.0}
        logged = [("out/loss", 10), ("out/loss", 20), ("out/loss", 100), ("out/losses", 200)]
        items = [LoggedArtifact.model_validate({"name": name, "step": step, **known}) for name, step in logged]
        return LoggedArtifacts(items=items, next=None)

    def download_artifact(self, _job: str, name: str, to: Path, *, step: int | None) -> Path:
        self.asked.append((name, step))
        return to


@pytest.mark.parametrize(("options", "step"), [([], 100), (["--step", "20"], 20)])
def test_one_file_is_downloaded(
    options: list[str],
    step: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "Client", Service)
    monkeypatch.setattr(Service, "asked", [], raising=False)
    assert run(["artifacts", "job-1", "--download", "out/loss", "--to", str(tmp_path), *options]) == 0
    assert Service.asked == [("out/loss", step)]
    assert capsys.readouterr().out.split() == [str(tmp_path / f"out/loss.step-{step}")]
