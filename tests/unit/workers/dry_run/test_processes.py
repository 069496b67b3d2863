import json
import os
from pathlib import Path

import pytest
from harness.dry_run import SPEC
from harness.patience import PATIENCE_S

from shardyard.strategies import cxx_compiler
from shardyard.strategies.layout import Layout, Refusal
from shardyard.workers.dry_run import processes
from shardyard.workers.dry_run.processes import (
    NO_DEVICE,
    DryRunFailed,
    DryRunUnavailable,
    Request,
    disagreements,
    dry_runs,
    representatives,
)
from shardyard.workers.dry_run.report import DryRun, Message
from shardyard.workers.gpu_models import GPU_MODELS
from shardyard.workers.spec import TrainSpec


def report(rank: int, digest: str, *messages: Message) -> DryRun:
    return DryRun(rank, 4, "", 0, 0, 0, "update", 0, {}, (), (), (), {"0,1": digest}, messages)


def test_a_pipeline_is_shown_by_one_rank_of_each_place() -> None:
    assert representatives(Layout(data=4, tensor=2)) == (0,)
    assert representatives(Layout(data=2, tensor=2, pipeline=2)) == (0, 4)


def test_a_request_is_one_line() -> None:
    line = Request(TrainSpec.model_validate(SPEC), 256, GPU_MODELS[0], rank=3).line()
    assert line.count("\n") == 1 and json.loads(line)["rank"] == 3


def test_groups_whose_ranks_differ_are_named() -> None:
    assert disagreements({0: report(0, "a"), 1: report(1, "a")}) == []
    (problem,) = disagreements({0: report(0, "a"), 1: report(1, "b")})
    assert problem == "Ranks 0 and 1 start different collectives in the group of ranks 0,1."


def test_messages_to_ranks_that_were_not_run_do_not_count() -> None:
    away = Message("send", 7, 1, "torch.float32", 0)
    assert disagreements({0: report(0, "a", away), 1: report(1, "a")}) == []


@pytest.mark.skipif(cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here")
def test_what_a_dry_run_does_not_cover_is_refused_with_its_field() -> None:
    train = TrainSpec.model_validate({**SPEC, "compile": True})
    with pytest.raises(Refusal) as caught:
        dry_runs([Request(train, 256, GPU_MODELS[0])])
    assert caught.value.field == "compile"


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        (f"raise SystemExit({NO_DEVICE})", DryRunUnavailable, "it exited with"),
        ("import sys; sys.stderr.write('first\\nlast\\n'); sys.exit(1)", DryRunFailed, "rank 0 failed: last"),
        ("", DryRunFailed, "it exited with 0"),
        ("import sys; sys.stderr.buffer.write(b'\\xff'); sys.exit(1)", DryRunFailed, "failed: "),
    ],
)
def test_a_process_that_breaks_off_is_an_error_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch, script: str, error: type[DryRunFailed], says: str
) -> None:
    monkeypatch.setattr(processes, "PROGRAM", ("-c", script))
    with pytest.raises(DryRunFailed) as caught:
        dry_runs([Request(TrainSpec.model_validate(SPEC), 256, GPU_MODELS[0])])
    assert type(caught.value) is error and says in str(caught.value)


def test_a_dry_run_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROGRAM", ("-c", "import time; time.sleep(3600)"))
    with pytest.raises(DryRunUnavailable, match="longer than"):
        dry_runs([Request(TrainSpec.model_validate(SPEC), 256, GPU_MODELS[0])], timeout_s=0.1)


def test_what_a_module_leaves_running_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the service process of a library for logging, which has the standard error of the dry run."""
    fifo = tmp_path / "ends"
    os.mkfifo(fifo)
    left = f"import subprocess, sys; subprocess.Popen(['cat', {str(fifo)!r}], stdout=sys.stderr)"
    monkeypatch.setattr(processes, "PROGRAM", ("-c", f"{left}; sys.stderr.write('it is wrong\\n'); sys.exit(1)"))
    try:
        with pytest.raises(DryRunFailed, match="rank 0 failed: it is wrong"):
            dry_runs([Request(TrainSpec.model_validate(SPEC), 256, GPU_MODELS[0])], timeout_s=PATIENCE_S)
    finally:
        fifo.open("wb").close()


def test_where_no_process_can_be_started_there_is_no_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.sys, "executable", "/nowhere/python")
    with pytest.raises(DryRunUnavailable, match="No such file"):
        dry_runs([Request(TrainSpec.model_validate(SPEC), 256, GPU_MODELS[0])])
