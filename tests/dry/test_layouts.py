"""A step and a validation batch of every layout of the parity grid on fake devices: host waits, collectives and messages."""

from pathlib import Path
from typing import Any

import pytest
from harness.dry_layouts import ALL, MIXTURE
from harness.dry_run import DryRunner
from harness.host_waits import STEP, waits

from shardyard.strategies.layout import Layout
from shardyard.workers.dry_run.processes import disagreements, representatives

#: What `make test` runs; `make test-all` runs every one, and always with all ranks.
CORE = (
    "tensor2-data2",
    "zbv2-data2-zero3",
    "context-ulysses2-ring2-data2-zero3",
    "biased-data2-expert2",
)
#: In `make test` these run with one rank of each place in the pipeline, and the last one.
FEW = ("zbv2-data2-zero3", "context-ulysses2-ring2-data2-zero3")
#: Rank 0 is run under the race detector in these, and in all layouts that only `make test-all` runs.
RACES = ("zbv2-data2-zero3", "context-ulysses2-ring2-data2-zero3")
CASES = [
    *((name, name not in FEW) for name in CORE),
    *(pytest.param(name, True, marks=pytest.mark.full) for name in ALL if name not in CORE or name in FEW),
]


@pytest.mark.parametrize(("name", "every"), CASES)
def test_ranks_agree_and_the_host_waits_once(name: str, every: bool, dry: DryRunner) -> None:
    """`every`: all ranks are run, so that each collective is compared on its whole group, and each message meets its other end."""
    given, changes = ALL[name]
    layout = Layout.model_validate(given)
    batch = 12 if layout.data == 3 else 16
    ranks = range(layout.world_size) if every else sorted({*representatives(layout), layout.world_size - 1})
    races = name in RACES or name not in CORE
    reports = {rank: dry.report(given, rank, races=races and not rank, global_batch=batch, **changes) for rank in ranks}
    assert disagreements(reports) == []
    for report in reports.values():
        assert sum(report.by_kind.values()) == max(
            phase.bytes for phase in report.phases if phase.phase not in ("build", "validation")
        )
        assert waits(report.host_syncs) == STEP
        assert waits(report.validation_syncs) == {}
    if layout.pipeline > 1:
        assert any(report.messages for report in reports.values())


@pytest.mark.parametrize(("layout", "times"), [({"data": 2}, 0), ({"data": 2, "expert": 2}, 4)], ids=str)
def test_without_a_capacity_the_host_waits_once_per_layer_of_spread_experts(
    layout: dict[str, Any], times: int, dry: DryRunner
) -> None:
    """It reads how many rows go to each rank. The case above has a capacity, where it waits for nothing."""
    found = dry.report(layout, model={**MIXTURE, "capacity_factor": None})
    expected = {("strategies/expert_parallel.py", "read from device"): times} if times else {}
    assert waits(found.host_syncs) == {**STEP, **expected}
    assert waits(found.validation_syncs) == expected


@pytest.mark.parametrize("zero", [2, 3])
def test_a_module_of_the_users_own_waits_once_too(zero: int, dry: DryRunner) -> None:
    folder = Path(__file__).parents[2] / "examples/own_module"
    found = dry.report({"data": 2, "zero": zero}, model={"import": "bigram:make", "code": str(folder)})
    assert found.parameters == 2 * 256 * 64 + (64 * 256 + 256) + (256 * 64 + 64) + (64 * 256 + 256)
    assert found.state_bytes < 16 * found.parameters
    # In a dry run its ranks seem to have logged new names, and exchange them after the read: a wait between two moments.
    assert waits(found.host_syncs) == {**STEP, ("strategies/telemetry/device_clock.py", "event"): 3}
    assert waits(found.validation_syncs) == {}


WRITTEN_OUT = """
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.gate = nn.Linear(8, 8), nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        return x + self.gate * torch.tanh(self.inner(x))


class WrittenOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
        self.blocks = nn.ModuleDict({str(n): Gate() for n in range(int(torch.tensor(4)))})

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(x)
"""


@pytest.mark.parametrize("layout", [{}, {"data": 2, "zero": 3}], ids=str)
def test_a_parameter_whose_value_is_written_out_is_planned(
    layout: dict[str, Any], dry: DryRunner, tmp_path: Path
) -> None:
    (tmp_path / "written_out.py").write_text(WRITTEN_OUT)
    found = dry.report(layout, model={"import": "written_out:WrittenOut", "code": str(tmp_path)})
    assert found.parameters == 256 * 8 + 4 * (8 * 8 + 8 + 1) + 8 * 256 + 256


DROPPED = """
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.dropout, self.head = nn.Embedding(256, 8), nn.Dropout(0.5), nn.Linear(8, 256, bias=False)

    def forward(self, tokens):
        return self.head(self.dropout(self.embed(tokens)))

    def tensor_plan(self, sequence):
        return {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "dropout": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        }
"""


def test_a_random_operator_on_a_dtensor_sends_nothing(dry: DryRunner, tmp_path: Path) -> None:
    (tmp_path / "dropped.py").write_text(DROPPED)
    found = dry.report({"data": 2, "tensor": 2}, model={"import": "dropped:Dropped", "code": str(tmp_path)})
    assert not [one for one in found.collectives if one.kind == "broadcast"]


@pytest.mark.full
def test_messages_over_groups_of_pairs_meet_and_are_the_pipelines(dry: DryRunner) -> None:
    """The last rank also sends to the first one."""
    layout = {"pipeline": 3, "schedule": "interleaved"}
    reports = {
        rank: dry.report(layout, rank, model={"preset": "nano", "layers": 6}, global_batch=12) for rank in range(3)
    }
    assert disagreements(reports) == []
    for rank, report in reports.items():
        assert {message.other for message in report.messages} == {0, 1, 2} - {rank}
        assert {one.axis for one in report.collectives if one.kind == "send"} == {"pipeline"}
