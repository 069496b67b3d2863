"""fp16 gradients that overflow whatever the loss scale is end the run after a bound that no new start moves, and the culprit is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import LLAMA
from harness.ranks import group, spawn

from shardyard.strategies.precision import LossScale
from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

SMALLEST = {**LLAMA, "layers": 2, "dim": 16, "heads": 2, "kv_heads": 1, "hidden": 16}
#: The runs have so few tokens a step that the loss scale begins at its lowest.
MAX_SKIPPED = LossScale.for_tokens(1).max_skipped
#: A run that begins twice is broken off after this step.
BREAK = 15


@pytest.fixture
def orders(root: Path, make_spec: Make) -> Callable[..., str]:
    """`orders(layout, name)`: an fp16 run that is long enough."""

    def make(layout: dict[str, Any], name: str) -> str:
        rest = {"precision": "fp16", "steps": 60, "global_batch": 2, "snapshot": {"every": 1}, "eval": {"batches": 1}}
        spec = make_spec(layout, model=SMALLEST, **rest)
        checkpoints = root / "checkpoints" / name
        run = Run(job=name, train=TrainSpec.model_validate(spec), checkpoints=str(checkpoints), cache=root / "cache")
        return run.model_dump_json(by_alias=True)

    return make


def built_to_overflow(run: Run, device: Any, bad: range, heartbeat: Any) -> Any:
    """A rank's share of a run in which the gradient of a parameter of block 1 is infinite in the steps `bad`."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.param_shard import parameters
    from shardyard.workers.trainer.build import build

    built = build(run, make_mesh(run.train.layout, device))
    values = [p.value for p in parameters(built.parallel.parts, built.mesh) if p.name == "blocks.1.mlp.up.weight"]
    for value in values:
        value.register_hook(lambda grad: grad * float("inf") if heartbeat.step in bad else grad)
    return built


def overflowing(rank: int, world: int, port: int, text: str, bad: range) -> tuple[int, Any, list[Any]]:
    """The last step, what was raised, and all events."""
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.callbacks.nan_attribution import Overflowed
    from shardyard.workers.trainer.instruments import Instruments

    events: list[Any] = []
    instruments = Instruments()
    heartbeat = instruments.heartbeat
    built = built_to_overflow(Run.model_validate_json(text), group(rank, world, port), bad, heartbeat)
    try:
        assemble(built, lambda kind, data: events.append((kind, data)), instruments).run()
    except Overflowed as error:
        return heartbeat.step, (str(error), error.facts), events
    return heartbeat.step, None, events


@pytest.mark.parametrize(
    ("layout", "ranks"), [({"data": 2, "zero": 1}, "ranks 0, 1"), ({"pipeline": 2}, "rank 0")], ids=str
)
def test_a_bounded_number_of_skipped_steps_fails_the_run(layout: Any, ranks: str, orders: Make) -> None:
    found = spawn(overflowing, 2, orders(layout, f"overflow-{len(layout)}"), range(1, 100))
    assert found[0][:2] == found[1][:2], "all ranks agree"
    step, (message, facts), events = found[0]
    assert step == MAX_SKIPPED
    assert f"overflowed in {MAX_SKIPPED} steps in a row, at last with a loss scale of 1, " in message
    assert f"first in the gradient of blocks.1.mlp.up.weight on {ranks}: set precision to bf16" in message
    assert facts["rank"] == 0 and facts["parameter"] == "blocks.1.mlp.up.weight"
    steps = [data for kind, data in events if kind == "step"]
    assert [data["skipped"] for data in steps] == [True] * (MAX_SKIPPED - 1)


def test_one_step_that_is_not_skipped_begins_the_count_again(orders: Make) -> None:
    ((step, raised, events),) = spawn(overflowing, 1, orders({}, "one-good"), set(range(1, 60)) - {MAX_SKIPPED})
    assert raised is None and step == 60
    assert [data["step"] for kind, data in events if kind == "step" and not data["skipped"]] == [MAX_SKIPPED, 60]


def begun_twice(rank: int, world: int, port: int, text: str, from_memory: bool) -> int:
    """Break off after `BREAK` skipped steps, with a checkpoint and a snapshot, and go on from either; the step at which that fails."""
    from shardyard.workers.messages.stop_request import StopRequest
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.callbacks.nan_attribution import Overflowed
    from shardyard.workers.trainer.heartbeat import Heartbeat
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    run, device, fds = Run.model_validate_json(text), group(rank, world, port), shared_memory.allocate()
    heartbeat = Heartbeat()
    instruments = Instruments(lambda: StopRequest.SAVE if heartbeat.step == BREAK else StopRequest.NO, heartbeat)
    first, second = (built_to_overflow(run, device, range(1, 100), heartbeat) for _ in range(2))
    assemble(first, lambda *_: None, instruments, SnapshotMemory(fds)).run()
    memory = SnapshotMemory(fds, BREAK) if from_memory else SnapshotMemory()
    with pytest.raises(Overflowed):
        assemble(second, lambda *_: None, Instruments(heartbeat=heartbeat), memory).run()
    return heartbeat.step


@pytest.mark.parametrize("from_memory", [False, True], ids=["checkpoint", "snapshot"])
def test_what_goes_on_goes_on_counting(from_memory: bool, orders: Make) -> None:
    found = spawn(begun_twice, 2, orders({"data": 2}, f"twice-{from_memory}"), from_memory)
    assert found == [MAX_SKIPPED] * 2
