"""What a run reports whose losses are not all finite."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardyard.strategies.mesh import make_mesh
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer.assemble import assemble
from shardyard.workers.trainer.build import allocate
from shardyard.workers.trainer.instruments import Instruments
from shardyard.workers.trainer.reports import log_and_emit

STEPS = 4
#: Of its passes the first and the last one, and all in evaluation mode, give no finite loss.
MODULE = f"""
from torch import nn


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head, self.passes = nn.Embedding(256, 8), nn.Linear(8, 256), 0

    def forward(self, tokens):
        self.passes += self.training
        lost = not self.training or self.passes in (1, {STEPS})
        return self.head(self.embed(tokens)) * (float("nan") if lost else 1.0)
"""


@pytest.fixture
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_losses_that_are_not_finite_cost_neither_the_checkpoint_nor_the_final_loss(
    tmp_path: Path, alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bigram_of_lost_losses.py").write_text(MODULE)
    (tmp_path / "corpus.txt").write_text("a line of the corpus\n" * 400)
    model = {"import": "bigram_of_lost_losses:Bigram", "code": str(tmp_path)}
    data = {"source": "text", "files": [str(tmp_path / "corpus.txt")], "seq_len": 16, "validation": 0.2}
    small = {"model": model, "data": data, "steps": STEPS, "global_batch": 2, "precision": "fp16"}
    spec = TrainSpec.model_validate(small | {"eval": {"batches": 1}})
    run = Run(job="a", train=spec, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    events: list[tuple[str, dict[str, Any]]] = []
    emit = log_and_emit(lambda kind, found: events.append((kind, found)))
    assemble(allocate(run, make_mesh(spec.layout, torch.device("cpu"))), emit, Instruments()).run()
    steps = [found for kind, found in events if kind == "step"]
    assert [found["skipped"] for found in steps] == [True, False, False, True]
    losses = [found["loss"] for found in steps]
    assert losses[0] is None and losses[3] is None
    (summary,) = [found for kind, found in events if kind == "summary"]
    assert (summary["first_loss"], summary["last_loss"], summary["last_steps"]) == (losses[1], losses[2], 1)
    assert math.isfinite(summary["time_to_first_step_s"]) and summary["validation_loss"] is None
    assert Path(summary["checkpoint"]).is_dir() and Path(summary["checkpoint"]).name == f"step-{STEPS:08}"
    assert "validation loss not finite" in capsys.readouterr().out
