"""The measured bubble: every action of the exported order is timed once, and with blocks that only sleep it is the simulated one."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from harness.models import LLAMA
from harness.ranks import group, spawn, train
from harness.sleeping import SLEEPING

from .test_schedule import SCHEDULES

Make = Callable[..., Any]

#: A block sleeps for as long going forward as going back, and works next to nothing. Its unused weights make all blocks weigh more than
#: the head, so that each stage gets its share of them.
MODULE = (
    SLEEPING
    + """
class Block(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.unused = nn.Parameter(torch.zeros(64, 256))
        self.seconds = seconds

    def forward(self, x):
        return Sleep.apply(x, self.seconds, self.seconds) * self.scale

class Sleeper(nn.Module):
    def __init__(self, layers, seconds):
        super().__init__()
        self.embed = nn.Embedding(256, 4)
        self.blocks = nn.ModuleDict({str(i): Block(seconds) for i in range(layers)})
        self.norm = nn.Identity()
        self.head = nn.Linear(4, 256)

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))
"""
)


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, float], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "sleeper.py").write_text(MODULE)

    def model(layers: int, seconds: float) -> dict[str, Any]:
        return {"import": "sleeper:Sleeper", "code": str(folder), "args": {"layers": layers, "seconds": seconds}}

    return model


def _probes(run: Any) -> list[Any]:
    return [data for kind, data in run["events"] if kind == "probe"]


#: Every second one is long for `make test`.
SLEEPING = [
    ("1f1b", 4),
    ("1f1b", 2),
    ("gpipe", 2),
    ("gpipe", 4),
    ("interleaved", 2),
    ("interleaved", 4),
    ("interleaved-zb", 2),
    ("interleaved-zb", 4),
    ("zbv", 4),
    ("zbv", 2),
    ("dualpipev", 2),
    ("dualpipev", 4),
    ("zb-h1", 2),
    ("zb-h1", 4),
    ("zb-h2", 2),
    ("zb-h2", 4),
]
SECONDS = 0.15
#: What the simulation leaves out, messages and the schedule itself, is milliseconds beside each action's 150.
NEAR = 0.05
#: Two barriers end at one moment, but for the time in which they wake all ranks.
SKEW = 0.005


@pytest.mark.timing
@pytest.mark.parametrize(("schedule", "pipeline"), SLEEPING)
def test_sleeping_blocks_leave_the_simulated_bubble(
    schedule: str, pipeline: int, root: Path, make_spec: Make, sleeper: Make
) -> None:
    stages = pipeline * (1 if schedule in ("gpipe", "1f1b", "zb-h1", "zb-h2") else 2)
    microbatches = 2 * pipeline
    layout = {"pipeline": pipeline, "schedule": schedule, "micro_batch": 1}
    changes = {"global_batch": microbatches, "precision": "fp32", "steps": 3, "eval": {"batches": 1}}
    run = train(make_spec(layout, model=sleeper(stages, SECONDS), probe={"every": 1}, **changes), root)
    (plan,) = [data for kind, data in run["events"] if kind == "plan"]
    assert [stop - start for start, stop in plan["stage_blocks"]] == [1] * stages
    probes = _probes(run)
    means = [probe["bubble_measured"]["mean"] for probe in probes]
    beyond = [mean - probe["bubble_simulated"] for mean, probe in zip(means, probes, strict=True)]
    # A busy machine makes ranks wait longer, and never less than they must: the quietest step is the one to look at.
    assert min(beyond) == pytest.approx(0, abs=NEAR)
    assert min(beyond) > -SKEW
    if schedule in ("gpipe", "1f1b"):
        assert min(means) == pytest.approx((pipeline - 1) / (microbatches + pipeline - 1), abs=NEAR)


@pytest.mark.parametrize("pipeline", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_timed_is_the_exported_order(schedule: str, pipeline: int, root: Path, make_spec: Make) -> None:
    from shardyard.strategies.pipeline_parallel.schedule_order import COMPUTES

    spec = make_spec({"pipeline": pipeline, "schedule": schedule, "micro_batch": 2}, model={**LLAMA, "layers": 9})
    for found in spawn(_timed, pipeline, spec, str(root)):
        computing = [action for action in found["order"] if action.kind in COMPUTES]
        assert found["timed"] == computing
        assert set(found["seconds"]) == set(computing) and min(found["seconds"].values()) > 0
        assert 0 < found["bubble"].measured < 1 and 0 < found["bubble"].simulated < 1
        assert found["left"] == []  # no other step pays


def _timed(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> dict[str, Any]:
    """One step as it is, one timed: what was timed, and what stays on the stages."""
    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run, TrainSpec
    from shardyard.workers.trainer.build import build

    train_spec = TrainSpec.model_validate(spec)
    run = Run(job="timed", train=train_spec, checkpoints=Path(root) / "checkpoints", cache=Path(root) / "cache")
    pipeline = build(run, make_mesh(train_spec.layout, group(rank, world, port))).parallel.runner
    tokens = torch.arange(16 * 32).view(16, 32) % 256
    pipeline.train(tokens, tokens)
    with pipeline.timed():
        pipeline.train(tokens, tokens)
    watch = pipeline._stopwatch
    timed = list(dict.fromkeys(action for action, _, _ in watch.laps))
    left = [name for stage in pipeline.stages for name in vars(stage) if name.endswith("one_chunk")]
    return {
        "order": pipeline.order[rank],
        "timed": timed,
        "seconds": watch.seconds,
        "bubble": pipeline.bubble(),
        "left": left,
    }


def test_every_pipeline_of_a_product_counts(root: Path, make_spec: Make) -> None:
    (found,) = _probes(train(make_spec({"pipeline": 2, "data": 2, "tensor": 2}, steps=2), root))
    measured = found["bubble_measured"]
    assert 0 < measured["min"] <= measured["mean"] <= measured["max"] < 1
    assert 0 < found["bubble_simulated"] < 1
    assert set(found["traffic"]["pipeline"]) == {"send"}  # the clock's barriers are no traffic


def test_without_a_pipeline_there_is_none(root: Path, make_spec: Make) -> None:
    (found,) = _probes(train(make_spec({"data": 2}, steps=2), root))
    assert not [key for key in found if key.startswith("bubble")]


def test_the_mean_is_over_all_ranks() -> None:
    from shardyard.strategies.pipeline_parallel.bubble import Bubble
    from shardyard.workers.trainer.callbacks.probe import bubbles

    found = bubbles([Bubble(0.2, 0.1), Bubble(0.3, 0.1), Bubble(0.7, 0.3), Bubble(0.8, 0.3)])
    assert found["bubble_measured"] == {"min": 0.2, "mean": fmean([0.2, 0.3, 0.7, 0.8]), "max": 0.8}
    assert found["bubble_simulated"] == pytest.approx(0.2)
