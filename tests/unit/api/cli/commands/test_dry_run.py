"""`dry-run` needs no control plane: what is wrong is said with its option or field, and a spec that runs is reported."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.cli.commands import dry_run as command
from shardyard.api.cli.main import run
from shardyard.strategies import cxx_compiler
from shardyard.workers.dry_run.processes import Request, dry_runs
from shardyard.workers.dry_run.report import DryRun

NEEDS_COMPILER = pytest.mark.skipif(
    cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here"
)

SPEC = """\
name: tiny
train:
  model: { preset: nano, layers: 2 }
  data: { seq_len: 64 }
  layout: { data: 2, tensor: 2, zero: 1 }
  precision: bf16
  steps: 1
  global_batch: 8
"""

#: 8 micro-batches of 70B on 512 ranks.
LARGE = """\
name: large
train:
  model: { preset: 70B, vocab: 128256 }
  data: { seq_len: 8192 }
  layout: { data: 64, tensor: 8, zero: 3, micro_batch: 1 }
  recompute: full
  precision: bf16
  steps: 1
  global_batch: 512
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    return str(path)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gpu", "H1"], ("--gpu", "H100 PCIe")),
        (["--world", "5"], ("--world", "multiple of 2")),
        (["--rank", "4"], ("--rank", "from 0 to 3")),
        (["--rank", "x"], ("--rank", "Use all")),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(
    spec: str, more: list[str], said: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dry-run", spec, *more]) == 1
    error = capsys.readouterr().err
    assert all(text in error for text in said)


def test_a_layout_that_cannot_run_is_refused_with_its_field(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(SPEC.replace("tensor: 2", "tensor: 3"))
    assert run(["dry-run", spec]) == 1
    assert "train.layout.tensor" in capsys.readouterr().err


def test_values_of_the_command_line_count(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dry-run", spec, "train.layout.tensor=3"]) == 1
    assert "train.layout.tensor" in capsys.readouterr().err


@pytest.fixture
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run takes seconds: one that is asked for again has the reports of the first."""
    known: dict[tuple[str, ...], list[DryRun]] = {}

    def reports(requests: Sequence[Request]) -> list[DryRun]:
        asked = tuple(request.line() for request in requests)
        if asked not in known:
            known[asked] = dry_runs(requests)
        return known[asked]

    monkeypatch.setattr(command, "dry_runs", reports)


@pytest.mark.usefixtures("_once")
@NEEDS_COMPILER
def test_a_step_on_another_world_is_reported(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["dry-run", spec, "--world", "16", "--rank", "3", "--gpu", "L4"]
    assert run([*wanted, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (report,) = found["ranks"]
    assert found["fits"] and found["gpu"] == "L4" and report["rank"] == 3 and report["world_size"] == 16
    assert report["by_kind"]["parameters"] > 0 and found["problems"] == []
    assert run(wanted) == 0
    shown = capsys.readouterr().out
    assert "fits on L4" in shown and "HOST WAITS PER STEP" in shown and "COLLECTIVES PER STEP" in shown


@pytest.mark.full
@NEEDS_COMPILER
def test_all_ranks_are_run_and_those_that_disagree_are_named(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[DryRun] = []

    def kept(requests: Sequence[Request]) -> list[DryRun]:
        reports.extend(dry_runs(requests))
        return reports

    monkeypatch.setattr(command, "dry_runs", kept)
    assert run(["dry-run", spec, "--rank", "all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [report["rank"] for report in found["ranks"]] == [0, 1, 2, 3] and found["problems"] == []
    groups = {group for report in found["ranks"] for group in report["sequence"]}
    assert groups >= {"0,1", "2,3", "0,2", "1,3", "0,1,2,3"}
    for group in groups:
        assert len({found["ranks"][int(rank)]["sequence"][group] for rank in group.split(",")}) == 1

    other = replace(reports[3], sequence=dict.fromkeys(reports[3].sequence, "another order"))
    monkeypatch.setattr(command, "dry_runs", lambda _: [*reports[:3], other])
    assert run(["dry-run", spec, "--rank", "all"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "Ranks 2 and 3 start different collectives in the group of ranks 2,3." in said


@pytest.mark.timing
@NEEDS_COMPILER
def test_70b_on_512_ranks_takes_at_most_15_seconds(tmp_path: Path) -> None:
    """The whole command. The first of three runs compiles the device where none has."""
    path, took = tmp_path / "large.yaml", []
    path.write_text(LARGE)
    for _ in range(3):
        began = time.perf_counter()
        command = [sys.executable, "-m", "shardyard.api.cli", "dry-run", str(path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        took.append(time.perf_counter() - began)
        assert done.returncode == 0, done.stderr
        (report,) = json.loads(done.stdout)["ranks"]
        assert report["world_size"] == 512 and report["parameters"] > 70e9
    print(f"{min(took):.1f} to {max(took):.1f} s")
    assert min(took) <= 15
