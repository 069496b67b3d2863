"""A module of the user's own is planned by a dry run in a process of its own: what it prints and raises does no harm here."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.patience import PATIENCE_S

from shardyard.strategies import cxx_compiler
from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run.module_plan import planned_memory
from shardyard.workers.dry_run.processes import DryRunFailed, DryRunUnavailable, Request
from shardyard.workers.dry_run.report import DryRun
from shardyard.workers.own_plan import digest
from shardyard.workers.planned_memory import MOST
from shardyard.workers.spec import TrainSpec

NEEDS_COMPILER = pytest.mark.skipif(
    cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here"
)
NET = """
import torch

print("this is no answer of a dry run")


def make(width):
    return torch.nn.Sequential(torch.nn.Embedding(256, width), torch.nn.Linear(width, 256))
"""


def spec(code: Path | str = "/code", **changes: Any) -> TrainSpec:
    model = {"import": "net_of_a_user:make", "code": str(code), "args": {"width": 16}}
    given = {"model": model, "data": {"seq_len": 32}, "layout": {"data": 2}, "steps": 1, "global_batch": 8}
    return TrainSpec.model_validate({**given, **changes})


def report(rank: int, **by_kind: int) -> DryRun:
    return DryRun(rank, 4, "", 77, 0, 10**9, "build", 5, by_kind, (), (), (), {})


def test_what_a_rank_needs_is_sent_in_the_precision_of_the_server() -> None:
    asked: list[Request] = []

    def run(requests: Sequence[Request], timeout_s: float) -> list[DryRun]:
        asked.extend(requests)
        assert timeout_s == 7.0
        return [report(0, parameters=4, activations=9)]

    train = spec(layout={"data": 4})
    found = planned_memory(train, "fp16", 7.0, run)
    assert [one.rank for one in asked] == [0]
    assert {one.train.precision.compute for one in asked} == {"fp16"} and {one.vocab for one in asked} == {256}
    assert (found.at_peak.parameters, found.at_peak.activations, found.host_bytes) == (4, 9, 5)
    assert (found.of, found.ranks, found.parameters) == (digest(train), 4, 77)


@pytest.mark.parametrize(
    "change",
    [
        {"compile": True},
        {"layout": {"pipeline": 2}},
        {"layout": {"data": 2, "parameter_server": {"servers": 1}}},
        {"data": {"source": "a:c"}},
        {"data": {"tokenizer": "/nowhere/tokenizer.json"}},
    ],
    ids=str,
)
def test_where_there_can_be_none_nothing_is_run(change: dict[str, Any]) -> None:
    def run(requests: Sequence[Request], timeout_s: float) -> list[DryRun]:
        raise AssertionError(requests)

    with pytest.raises(DryRunUnavailable):
        planned_memory(spec(**change), "bf16", 1.0, run)


def test_numbers_of_no_machine_are_cut_to_what_a_spec_may_hold() -> None:
    found = planned_memory(spec(), "fp32", 1.0, lambda requests, timeout_s: [report(0, activations=2**60)])
    assert found.at_peak.activations == MOST


def test_a_tokenizer_of_an_unknown_user_is_no_error_of_the_module() -> None:
    with pytest.raises(DryRunUnavailable, match="home"):
        planned_memory(spec(data={"tokenizer": "~no-user-of-this-name/tokenizer.json"}), "fp32", 1.0)


@NEEDS_COMPILER
def test_a_module_is_planned_whatever_it_prints(tmp_path: Path) -> None:
    (tmp_path / "net_of_a_user.py").write_text(NET)
    found = planned_memory(spec(tmp_path), "fp32", PATIENCE_S)
    assert found.parameters == 256 * 16 + 16 * 256 + 256
    assert found.at_peak.parameters >= 4 * found.parameters and found.at_peak.optimizer >= 8 * found.parameters


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("raise ValueError('no\\n weights here')", DryRunFailed, "ValueError: no weights here"),
        pytest.param("raise SystemExit('enough')", DryRunFailed, "SystemExit: enough", marks=pytest.mark.full),
        pytest.param("import not_here", Refusal, "No module named 'not_here'", marks=pytest.mark.full),
    ],
)
def test_the_error_of_a_module_is_quoted_in_one_line(
    tmp_path: Path, code: str, error: type[Exception], says: str
) -> None:
    (tmp_path / "net_of_a_user.py").write_text(code)
    with pytest.raises(error) as caught:
        planned_memory(spec(tmp_path), "fp32", PATIENCE_S)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.full
@NEEDS_COMPILER
def test_a_module_that_does_not_end_ends_with_its_time(tmp_path: Path) -> None:
    """Its process is a child of the one that is killed. The time-out grows until the module has begun."""
    began = tmp_path / "pid"
    code = f"import os, pathlib, time\npathlib.Path({str(began)!r}).write_text(str(os.getpid()))\ntime.sleep(3600)\n"
    (tmp_path / "net_of_a_user.py").write_text(code)
    for timeout_s in (10.0, 20.0, 40.0):
        with pytest.raises(DryRunUnavailable, match="longer than"):
            planned_memory(spec(tmp_path), "fp32", timeout_s)
        if began.exists() and began.read_text():
            break
    with contextlib.suppress(psutil.NoSuchProcess):
        assert ended(psutil.Process(int(began.read_text())))


def ended(process: psutil.Process) -> bool:
    """Whether a process ends; one that no process waits for stays as a zombie."""
    until = time.monotonic() + PATIENCE_S
    while process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)
    return True
