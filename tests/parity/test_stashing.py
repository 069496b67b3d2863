"""PipeDream's pipeline: what runs is the exported order with the paper's versions; a run that stops anywhere goes on as if it had not.

`test_textbook.py` compares it with a serial loop that shares no code with it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2
from harness.ranks import group, spawn, train

from .test_continuous import assert_goes_on, folder_of

Make = Callable[..., Any]
TWO: dict[str, Any] = {"pipeline": 2, "schedule": "pipedream"}
SYNCHRONISED = {**TWO, "vertical_sync": True}
SAVING = {"every": 2, "keep": 5, "final": False}


def _assert_equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    for key, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][key], value, rtol=0, atol=1e-10, err_msg=key)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        (TWO, {"model": {**GPT2, "layers": 4, "tied": True}}),
        ({**TWO, "pipeline": 4}, {"steps": 6}),
        ({**TWO, "data": 2}, {"precision": "bf16"}),
        ({**TWO, "pipeline": 3}, {"precision": "fp32", "recompute": "full", "optimizer": {"name": "sgd", "lr": 1e-2}}),
        (SYNCHRONISED, {"precision": "bf16"}),
        ({**SYNCHRONISED, "pipeline": 4}, {"steps": 6, "model": {**GPT2, "layers": 4, "tied": True}}),
        ({**SYNCHRONISED, "pipeline": 3, "data": 2}, {"steps": 5}),
    ],
    ids=[
        "tied",
        "four-stages",
        "bf16-two-replicas",
        "sgd-three-stages",
        "synchronised-bf16",
        "synchronised-four-stages-tied",
        "synchronised-three-stages-two-replicas",
    ],
)
def test_a_run_that_goes_on_has_the_same_bits(layout: Any, changes: Any, root: Path, make_spec: Make) -> None:
    assert_goes_on(layout, changes, root, make_spec)


def test_its_checkpoint_gives_other_layouts_its_newest_weights(root: Path, make_spec: Make) -> None:
    train(make_spec(TWO, checkpoint=SAVING, steps=2), root, "stashed")
    whole, parts = (
        train(make_spec(layout, steps=3), root, f"stashed-{number}", resume=folder_of(root, "stashed", 2))
        for number, layout in enumerate(({}, {"pipeline": 2}))
    )
    np.testing.assert_allclose(parts["losses"], whole["losses"], rtol=1e-10)


@pytest.mark.parametrize("layout", [TWO, SYNCHRONISED], ids=["by-stage", "synchronised"])
def test_a_checkpoint_without_older_versions_begins_like_step_1(layout: Any, root: Path, make_spec: Make) -> None:
    """Its first step takes all of the gradient where the weights are, as 1F1B does."""
    name = f"before-stashing-{len(layout)}"
    flushed = train(make_spec({"pipeline": 2}, checkpoint=SAVING, steps=3), root, name)
    found = train(make_spec(layout, steps=3), root, f"{name}-from-it", resume=folder_of(root, name, 2))
    _assert_equal(found, {**flushed, "losses": flushed["losses"][2:]})


def test_the_last_stage_alone_has_no_delay(root: Path, make_spec: Make) -> None:
    """In step 2 the last stage has its new weights already, so that losses are neither 1F1B's nor 2BW's."""
    three = [
        train(make_spec({"pipeline": 2, "schedule": schedule, "micro_batch": size}, steps=3), root)["losses"]
        for schedule, size in (("pipedream", 16), ("1f1b", 8), ("2bw", 8))
    ]
    assert [losses[0] for losses in three] == pytest.approx([three[0][0]] * 3, rel=1e-10)
    (second,) = {round(losses[1], 9) for losses in three[2:]}
    assert three[0][1] != pytest.approx(second, rel=1e-6) and three[0][1] != pytest.approx(three[1][1], rel=1e-6)


def test_a_synchronised_run_goes_on_from_one_that_is_not(root: Path, make_spec: Make) -> None:
    """The last stage has its newest version alone, which stands for the one before it: the first step is as it would have been."""
    before = train(make_spec(TWO, checkpoint=SAVING, steps=4), root, "by-stage")
    found = train(make_spec(SYNCHRONISED, steps=4), root, "synchronised", resume=folder_of(root, "by-stage", 2))
    assert found["losses"][0] == pytest.approx(before["losses"][2], rel=1e-10)
    assert found["losses"][1] != pytest.approx(before["losses"][3], rel=1e-6)


@pytest.mark.parametrize("vertical_sync", [False, True], ids=["by-stage", "synchronised"])
@pytest.mark.parametrize("pipeline", [2, 4])
def test_what_runs_is_the_exported_order(pipeline: int, vertical_sync: bool, root: Path, make_spec: Make) -> None:
    from shardyard.strategies.cost.in_flight import in_flight
    from shardyard.strategies.delayed_rules import versions_of
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.pipeline_parallel.schedule import planned_order

    spec = make_spec({**TWO, "pipeline": pipeline, "vertical_sync": vertical_sync})
    layout = Layout.model_validate(spec["layout"])
    order = planned_order(layout, 1)
    for rank, found in enumerate(spawn(_record, pipeline, spec, str(root))):
        assert found["executed"] == [str(action) for action in order[rank] if action.kind in ("F", "B")]
        assert found["held"] == in_flight(layout, 1, rank) == pipeline - rank
        assert found["versions"] == versions_of(layout, rank) == pipeline - (0 if vertical_sync else rank)
        assert found["same"] and found["left"] == 0


STEPS = 9


def _record(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> dict[str, Any]:
    """Steps of which the one in the middle is watched: its passes, and the most graphs that live.

    `versions`: how many memories the weights had over all steps; `same`: whether both passes of every minibatch used the same values.
    """
    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run, TrainSpec
    from shardyard.workers.trainer.build import build

    train_spec = TrainSpec.model_validate(spec)
    run = Run(job="order", train=train_spec, checkpoints=Path(root) / "checkpoints", cache=Path(root) / "cache")
    parts = build(run, make_mesh(train_spec.layout, group(rank, world, port)))
    pipeline, data = parts.parallel.runner, parts.parallel.data
    batches = [
        (tokens, tokens) for tokens in (torch.arange(16 * 32).view(16, 32) % (240 + step) for step in range(STEPS))
    ]
    (stage,) = pipeline.stages
    passes: dict[int, list[str]] = {step: [] for step in range(STEPS)}
    values: dict[tuple[str, int], torch.Tensor] = {}
    held, memories, now = [], set(), 0

    def watched(kind: str, run: Any) -> Any:
        def watch(number: int, *given: Any) -> Any:
            weight = next(iter(parts.parallel.parts[0].parameters()))
            passes[now].append(f"{rank}{kind}{number}")
            values[kind, now + number] = weight.detach().clone()
            memories.add(weight.data_ptr())
            result = run(number, *given)
            held.append(len(stage._graphs))
            return result

        return watch

    stage.forward_one_chunk = watched("F", stage.forward_one_chunk)
    stage.backward_one_chunk = watched("B", stage.backward_one_chunk)
    for now, batch in enumerate(batches):
        pipeline.expect(
            lambda number=1, now=now: batches[now + number] if now + number < STEPS else None, STEPS - 1 - now
        )
        pipeline.train(*batch)
        data.reduce()
        pipeline.before_update()
        for shard in data.shards:
            shard.tensor.add_(shard.gradient, alpha=-1e-3)
        data.publish()
    return {
        "executed": passes[STEPS // 2],
        "held": max(held),
        "versions": len(memories),
        "same": all(torch.equal(values["F", step], values["B", step]) for step in range(STEPS)),
        "left": len(stage._graphs),
    }
