"""2BW's pipeline: what runs is the exported order, without a bubble; a run that stops anywhere goes on as if it had not.

`test_textbook.py` compares it with a serial loop that shares no code with it.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2
from harness.ranks import group, spawn, train

Make = Callable[..., Any]
TWO: dict[str, Any] = {"pipeline": 2, "schedule": "2bw"}


def folder_of(root: Path, name: str, step: int) -> Path:
    return root / "checkpoints" / name / f"step-{step:08d}"


def assert_goes_on(layout: Any, changes: Any, root: Path, make_spec: Make) -> None:
    """A run that continues from the checkpoint of step 2 has the bits of the run that saved it."""
    name = f"goes-on-{sha256(str((layout, changes)).encode()).hexdigest()[:8]}"
    saving = {"every": 2, "keep": 5, "final": False}
    whole = train(make_spec(layout, checkpoint=saving, **changes), root, name)
    rest = train(make_spec(layout, **changes), root, f"{name}-rest", resume=folder_of(root, name, 2))
    assert rest["losses"] == whole["losses"][2:] and rest["norms"] == whole["norms"][2:]
    for key, value in whole["parameters"].items():
        np.testing.assert_array_equal(rest["parameters"][key], value, err_msg=key)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        (TWO, {"model": {**GPT2, "layers": 4, "tied": True}}),
        ({**TWO, "pipeline": 4, "micro_batch": 2}, {}),
        ({**TWO, "data": 2}, {"precision": "bf16"}),
        (TWO, {"precision": "fp32", "recompute": "selective", "optimizer": {"name": "sgd", "lr": 1e-2}}),
        ({**TWO, "pipeline": 4, "micro_batch": 4}, {}),
        ({**TWO, "data": 2}, {"precision": "bf16", "optimizer": {"lr": 3e-3, "clip_norm": None}}),
    ],
    ids=["tied", "four-stages", "bf16-two-replicas", "sgd", "four-micro-batches", "apart-bf16-two-replicas"],
)
def test_a_run_that_goes_on_has_the_same_bits(layout: Any, changes: Any, root: Path, make_spec: Make) -> None:
    assert_goes_on(layout, changes, root, make_spec)


def test_its_checkpoint_gives_other_layouts_its_newest_weights(root: Path, make_spec: Make) -> None:
    saving = {"every": 2, "keep": 5, "final": False}
    found = train(make_spec(TWO, checkpoint=saving, steps=2), root, "newest")
    (whole, parts) = (
        train(make_spec(layout, steps=3), root, f"newest-{number}", resume=folder_of(root, "newest", 2))
        for number, layout in enumerate(({}, {"pipeline": 2}))
    )
    np.testing.assert_allclose(parts["losses"], whole["losses"], rtol=1e-10)
    (validated,) = [data["loss"] for kind, data in found["events"] if kind == "eval"]
    frozen = make_spec({}, steps=3, optimizer={"lr": 1e-30})
    again = train(frozen, root, "still", resume=folder_of(root, "newest", 2))
    assert [data["loss"] for kind, data in again["events"] if kind == "eval"][-1] == pytest.approx(validated, rel=1e-10)


def test_a_checkpoint_without_an_older_version_begins_like_step_1(root: Path, make_spec: Make) -> None:
    """Its first step takes the gradient where it stands, as 1F1B does."""
    saving = {"every": 2, "keep": 5, "final": False}
    flushed = train(make_spec({"pipeline": 2}, checkpoint=saving, steps=3), root, "flushed")
    found = train(make_spec(TWO, steps=3), root, "delayed-from-it", resume=folder_of(root, "flushed", 2))
    np.testing.assert_allclose(found["losses"], flushed["losses"][2:], rtol=1e-10)
    for key, value in flushed["parameters"].items():
        np.testing.assert_allclose(found["parameters"][key], value, rtol=0, atol=1e-10, err_msg=key)


def test_sums_in_a_wider_dtype_are_kept_apart_too(root: Path, make_spec: Make) -> None:
    """In bf16 gradients are added up in buckets of fp32."""
    exact, rounded = (
        train(make_spec({**TWO, "data": 2, "micro_batch": 2}, precision=precision, steps=4), root, f"wide-{precision}")
        for precision in ("fp64", "bf16")
    )
    np.testing.assert_allclose(rounded["losses"], exact["losses"], rtol=5e-3)
    np.testing.assert_allclose(rounded["norms"], exact["norms"], rtol=5e-2)


@pytest.mark.parametrize("clip_norm", [1.0, None], ids=["together", "apart"])
@pytest.mark.parametrize("pipeline", [2, 4])
def test_what_runs_is_the_exported_order(pipeline: int, clip_norm: float | None, root: Path, make_spec: Make) -> None:
    from shardyard.strategies.cost.in_flight import in_flight
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.pipeline_parallel.schedule import planned_order

    spec = make_spec({**TWO, "pipeline": pipeline, "micro_batch": 2}, optimizer={"lr": 3e-3, "clip_norm": clip_norm})
    layout, apart = Layout.model_validate(spec["layout"]), clip_norm is None
    order = planned_order(layout, 8, apart)
    for rank, found in enumerate(spawn(_record, pipeline, spec, str(root))):
        expected = [(str(action), action.microbatch >= 8) for action in order[rank] if action.kind in ("F", "B")]
        assert found["executed"] == expected
        assert found["held"] == in_flight(layout, 8, rank, apart)
        assert found["left"] == 0


def _record(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> dict[str, Any]:
    """Three steps of which the second is watched: each pass, whether it uses the newest version, and the most graphs that live."""
    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run, TrainSpec
    from shardyard.workers.trainer.build import build

    train_spec = TrainSpec.model_validate(spec)
    run = Run(job="order", train=train_spec, checkpoints=Path(root) / "checkpoints", cache=Path(root) / "cache")
    parts = build(run, make_mesh(train_spec.layout, group(rank, world, port)))
    pipeline, data = parts.parallel.runner, parts.parallel.data
    batches = [(tokens, tokens) for tokens in (torch.arange(16 * 32).view(16, 32) % (250 + step) for step in range(3))]
    (stage,) = pipeline.stages
    executed: list[tuple[str, bool]] = []
    held: list[int] = []
    forward, backward = stage.forward_one_chunk, stage.backward_one_chunk
    newest = data.shards[0].tensor

    def watched(kind: str, run: Any) -> Any:
        def watch(number: int, *given: Any) -> Any:
            value = next(iter(parts.parallel.parts[0].parameters()))
            executed.append((f"{rank}{kind}{number}", value.data_ptr() == newest.data_ptr()))
            result = run(number, *given)
            held.append(len(stage._graphs))
            return result

        return watch

    for step, batch in enumerate(batches):
        if step == 1:
            stage.forward_one_chunk, stage.backward_one_chunk = watched("F", forward), watched("B", backward)
        if step < 2:
            pipeline.expect(lambda step=step: batches[step + 1])
        else:
            stage.forward_one_chunk, stage.backward_one_chunk = forward, backward
        pipeline.train(*batch)
        data.reduce()
        pipeline.before_update()
        for shard in data.shards:
            shard.tensor.add_(shard.gradient, alpha=-1e-3)
        data.publish()
    return {
        "executed": executed,
        "held": max(held),
        "left": len(stage._graphs),
    }
