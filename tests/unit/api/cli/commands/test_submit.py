"""`submit` and `submit --dry-run` of a user's own module: its plan in the form of all plans, or in one line why there is none."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from shardyard.api.cli.commands import submit as command
from shardyard.api.cli.main import run
from shardyard.api.client import ApiError
from shardyard.service.schemas.memory_plan import KindBytes, MemoryPlan
from shardyard.service.schemas.preview import Preview
from shardyard.service.schemas.problem import FieldError

SPEC = """\
name: mine
train:
  model: { import: "net:make", code: ./src }
  steps: 1
  global_batch: 8
"""
PLAN = MemoryPlan(
    device="cuda",
    source="dry run",
    fits=True,
    bytes=6 << 30,
    needed_bytes=8 << 30,
    reserved_bytes=2 << 30,
    device_bytes=80 << 30,
    kinds=[KindBytes(kind="parameters", bytes=2 << 30), KindBytes(kind="activations", bytes=4 << 30)],
    host=[],
    notes=["By the submitter's dry run of the module, not by formulas."],
)


def preview(**changes: Any) -> Preview:
    given: dict[str, Any] = {"name": "mine", "layout": "data 1", "batch": "8", "world_size": 1, "precision": "bf16"}
    return Preview.model_validate({**given, **changes})


class FakeClient:
    """Answers with `found`, or raises it; `reason`: why there is no plan. `asked`: the seconds for plans."""

    found: Preview | ApiError = preview()
    reason: str | None = None
    asked: list[float | None]

    def __init__(self, url: str | None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def preview(self, spec: Any, *, plan_s: float | None, on_unplanned: Callable[[str], None]) -> Preview:
        self.asked.append(plan_s)
        if self.reason is not None:
            on_unplanned(self.reason)
        if isinstance(self.found, ApiError):
            raise self.found
        return self.found

    def submit(self, spec: Any, *, plan_s: float | None, on_unplanned: Callable[[str], None], **_: Any) -> Any:
        self.asked.append(plan_s)
        if self.reason is not None:
            on_unplanned(self.reason)
        return SimpleNamespace(id="job-1", name="mine", state="queued", warnings=[], layout_choice=None, pausing=False)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    """A class of this test's own: what is set on it ends with the test."""

    class Client(FakeClient):
        asked: list[float | None] = []  # noqa: RUF012

    monkeypatch.setattr(command, "Client", Client)
    return Client


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    return str(path)


def test_a_plan_by_dry_run_is_printed_by_kind(
    client: type[FakeClient], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client.found = preview(memory=PLAN, parameters=1234)
    assert run(["submit", spec, "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "fits: 8.0 GiB per rank of 80.0 GiB per GPU, by dry run" in shown
    assert "parameters 2.0 GiB, activations 4.0 GiB, the process itself 2.0 GiB" in shown
    assert "1,234" in shown and "not by formulas" in shown and client.asked == [None]


def test_without_a_dry_run_the_reason_is_said(
    client: type[FakeClient], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client.found, client.reason = preview(needs_dry_run=True), "A dry run needs torch."
    assert run(["submit", spec, "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not planned: A dry run needs torch." in shown and "shardyard dry-run" in shown


def test_a_plan_that_is_not_wanted_is_not_made(
    client: type[FakeClient], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client.found = preview(needs_dry_run=True)
    assert run(["submit", spec, "--dry-run", "--no-plan"]) == 0 and run(["submit", spec, "--no-plan"]) == 0
    assert "no formula for a module of your own" in " ".join(capsys.readouterr().out.split())
    assert client.asked == [0.0, 0.0]


def test_a_dry_run_that_fails_ends_the_command_with_the_field(
    client: type[FakeClient], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "The dry run of rank 0 failed: KeyError: 3"
    finding = FieldError(field="train.model.import", message=says, remedy="Correct it.")
    client.found = ApiError("dry_run_failed", says, None, [finding])
    assert run(["submit", spec, "--dry-run"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert says in shown and "train.model.import" in shown and "Correct it." in shown


def test_a_submission_without_a_plan_says_why_and_goes_on(
    client: type[FakeClient], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client.reason = "cannot import net:make: No module named 'x'."
    assert run(["submit", spec]) == 0
    said = capsys.readouterr()
    assert "job-1 mine queued" in " ".join(said.out.split())
    assert "The memory of the module is not planned: cannot import net:make" in " ".join(said.err.split())


def test_a_preview_can_be_read_by_programs(
    client: type[FakeClient], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client.found = preview(memory=PLAN)
    assert run(["submit", spec, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["source"] == "dry run"


@pytest.mark.parametrize(
    ("more", "seconds", "says"), [([], "60", True), (["--no-plan"], "60", False), ([], "0", False)]
)
def test_what_a_submission_of_a_module_waits_for_is_said(
    client: type[FakeClient],
    spec: str,
    more: list[str],
    seconds: str,
    says: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SHARDYARD_DRY_RUN_S", seconds)
    assert run(["submit", spec, *more]) == 0
    assert ("Dry-running the module" in capsys.readouterr().err) == says and len(client.asked) == 1
