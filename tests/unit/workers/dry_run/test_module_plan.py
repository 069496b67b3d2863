"""A module of the user's own is planned by a dry run in a process of its own: what it prints and raises does no harm here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shardyard.strategies import cxx_compiler
from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run.module_plan import planned_memory
from shardyard.workers.dry_run.processes import DryRunFailed, DryRunUnavailable, Request
from shardyard.workers.dry_run.report import DryRun
from shardyard.workers.own_plan import digest
from shardyard.workers.spec import TrainSpec

NEEDS_COMPILER = pytest.mark.skipif(
    cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here"
)
#: Seconds; a dry run takes some, and more on a busy machine.
PATIENCE_S = 100.0

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
    return DryRun(rank, 4, "", 77, 0, 10**9, "build", 5, by_kind, (), (), (), {})  # type: ignore[arg-type]


def test_the_rank_that_needs_most_is_sent_in_the_precision_of_the_server() -> None:
    asked: list[Request] = []

    def run(requests: Sequence[Request], timeout_s: float) -> list[DryRun]:
        asked.extend(requests)
        assert timeout_s == 7.0
        return [report(0, parameters=4, activations=9), report(2, parameters=5, logits=3)]

    train = spec(layout={"data": 2, "pipeline": 2})
    found = planned_memory(train, "fp16", 7.0, run)
    assert [one.rank for one in asked] == [0, 2]
    assert {one.train.precision.compute for one in asked} == {"fp16"} and {one.vocab for one in asked} == {256}
    assert (found.at_peak.parameters, found.at_peak.activations, found.host_bytes) == (4, 9, 5)
    assert (found.of, found.ranks, found.parameters) == (digest(train), 4, 77)


@pytest.mark.parametrize(
    "change",
    [{"compile": True}, {"data": {"source": "a:c"}}, {"data": {"tokenizer": "/nowhere/tokenizer.json"}}],
    ids=str,
)
def test_where_there_can_be_none_nothing_is_run(change: dict[str, Any]) -> None:
    def run(requests: Sequence[Request], timeout_s: float) -> list[DryRun]:
        raise AssertionError(requests)

    with pytest.raises(DryRunUnavailable):
        planned_memory(spec(**change), "bf16", 1.0, run)


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
        ("raise SystemExit('enough')", DryRunFailed, "SystemExit: enough"),
        ("import not_on_this_machine", Refusal, "No module named 'not_on_this_machine'"),
    ],
)
def test_the_error_of_a_module_is_quoted_in_one_line(
    tmp_path: Path, code: str, error: type[Exception], says: str
) -> None:
    (tmp_path / "net_of_a_user.py").write_text(code)
    with pytest.raises(error) as caught:
        planned_memory(spec(tmp_path), "fp32", PATIENCE_S)
    assert says in str(caught.value) and "\n" not in str(caught.value)
