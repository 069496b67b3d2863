"""`shardyard checkpoints` and `export` look a name up once: all their requests are about one job, though a newer one gets the name."""

from types import SimpleNamespace
from typing import Any

import pytest
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import checkpoints, models
from shardyard.api.cli.main import run
from shardyard.service.schemas.checkpoint import Checkpoint, Checkpoints
from shardyard.service.schemas.operation import Exported


class Service(ClientStandIn):
    """A client of a service whose newest job `train` is at first job-1, and then another one."""

    jobs: list[str]
    asked: list[Any]

    def job(self, name: str) -> SimpleNamespace:
        assert name == "train"
        return SimpleNamespace(id=self.jobs.pop(0))

    def checkpoints(self, job: str, **_: object) -> Checkpoints:
        self.asked.append(("checkpoints", job))
        found = Checkpoint(position=4, ts=1.0, attempt=1, step=10, state="present", path="s3://bucket/step-00000010")
        return Checkpoints(items=[found])

    def __getattr__(self, request: str) -> Any:
        def answer(job: str, *_: object, **__: object) -> Any:
            self.asked.append((request, job))
            exported = Exported(path="/out", dtype="fp32", parameters=1, bytes=1, files=1, tokenizer_missing=None)
            verified = SimpleNamespace(verdict="valid", message=None)
            return SimpleNamespace(error=None, verified=verified, exported=exported)

        return answer

    def finished(self, operation: Any) -> Any:
        return operation

    def download_checkpoint(self, job: str, *_: object) -> list[str]:
        self.asked.append(("download_checkpoint", job))
        return []


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> type[Service]:
    for module in (checkpoints, models):
        monkeypatch.setattr(module, "Client", Service)
    monkeypatch.setattr(Service, "jobs", ["job-1", "job-2"], raising=False)
    monkeypatch.setattr(Service, "asked", [], raising=False)
    return Service


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["checkpoints", "train", "--on-cluster"], ["checkpoints", "verify_checkpoint"]),
        (["checkpoints", "train", "--download", "10"], ["download_checkpoint"]),
        (["checkpoints", "train", "--pin", "10"], ["checkpoints", "pin_checkpoint", "checkpoints"]),
        (["checkpoints", "train", "--unpin", "10"], ["checkpoints", "unpin_checkpoint", "checkpoints"]),
        (["export", "train@10", "--on-cluster"], ["checkpoints", "export_checkpoint"]),
    ],
)
def test_a_name_is_looked_up_once(service: type[Service], arguments: list[str], asked: list[str]) -> None:
    assert run(arguments) == 0
    assert service.asked == [(request, "job-1") for request in asked]


@pytest.mark.parametrize("arguments", [["checkpoints", "train", "--pin", "20"], ["export", "train@20", "--on-cluster"]])
def test_an_error_has_the_name_that_was_typed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 1
    printed = capsys.readouterr().err
    assert "train has no checkpoint of step 20." in printed and "shardyard checkpoints train" in printed
