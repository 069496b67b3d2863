"""Pipelines equal one process: every schedule, in products, with uneven splits and tied embeddings; and they run in the exported order."""

import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2, LLAMA
from harness.ranks import group, spawn, train

from .test_layouts import assert_equal

Make = Callable[..., Any]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev")


def _layout(pipeline: int, schedule: str, **more: int) -> dict[str, Any]:
    return {"pipeline": pipeline, "schedule": schedule, **more}


#: (layout, layers): two ranks with a number of layers that stages do not divide, four ranks, and the products.
LAYOUTS = [
    *((_layout(2, schedule), 5) for schedule in SCHEDULES),
    *((_layout(4, schedule), 9) for schedule in SCHEDULES),
    (_layout(2, "interleaved", virtual=3), 7),
    (_layout(2, "interleaved-zb", data=2), 5),
    (_layout(2, "interleaved-zb", data=2, zero=1), 5),
    (_layout(2, "interleaved-zb", data=2, zero=3), 5),
    (_layout(2, "interleaved-zb", tensor=2), 5),
    (_layout(2, "dualpipev", data=2, zero=2), 5),
    (_layout(2, "dualpipev", data=2, zero=3), 5),
    (_layout(2, "dualpipev", tensor=2), 5),
    (_layout(2, "gpipe", tensor=2, data=2, zero=2), 3),
    (_layout(2, "interleaved", tensor=2, data=2, zero=1), 5),
    (_layout(2, "dualpipev", tensor=2, data=2, zero=1), 5),
    (_layout(2, "zbv", tensor=2, data=2, zero=3), 5),
    (_layout(4, "1f1b", data=2, zero=1), 6),
    (_layout(4, "zbv", data=2, zero=2), 9),
    (_layout(2, "interleaved-zb", context=2), 5),
    (_layout(2, "dualpipev", context=2, data=2, zero=1), 5),
    (_layout(2, "zb-h1", data=2, zero=1), 5),
    (_layout(2, "zb-h1", data=2, zero=3), 5),
    (_layout(2, "zb-h1", tensor=2), 5),
    (_layout(2, "zb-h1", tensor=2, data=2, zero=2), 5),
    (_layout(4, "zb-h1", data=2, zero=2), 9),
    (_layout(2, "zb-h2", data=2), 5),
    (_layout(2, "zb-h2", data=2, zero=2), 5),
    (_layout(2, "zb-h2", data=2, zero=3), 5),
    (_layout(2, "zb-h2", context=2, zero=1), 5),
    (_layout(4, "zb-h2", tensor=2), 9),
]

TIED = [
    _layout(2, "gpipe"),
    _layout(4, "1f1b"),
    _layout(2, "interleaved"),
    _layout(2, "zbv"),
    _layout(2, "dualpipev", data=2, zero=1),
    _layout(2, "zbv", tensor=2),
    _layout(2, "1f1b", data=2, zero=1),
    _layout(2, "1f1b", data=2, zero=2),
    _layout(2, "1f1b", data=2, zero=3),
    _layout(2, "1f1b", tensor=2),
    _layout(2, "interleaved-zb", tensor=2, data=2, zero=1),
    _layout(2, "1f1b", tensor=2, data=2, zero=3),
    _layout(2, "1f1b", context=2, zero=1),
    _layout(2, "zbv", data=2, zero=3),
    _layout(2, "dualpipev", data=3, zero=3),
    _layout(2, "dualpipev", tensor=2, data=2, zero=3),
    _layout(4, "zb-h1"),
    _layout(2, "zb-h1", tensor=2, data=2, zero=1),
    _layout(2, "zb-h1", data=2, zero=3),
    _layout(2, "zb-h2", data=2, zero=2),
]


def _reported(run: Any, kind: str, key: str) -> list[Any]:
    return [data[key] for k, data in run["events"] if k == kind]


@pytest.mark.parametrize(("layout", "layers"), LAYOUTS, ids=str)
def test_schedules_equal_one_process(layout: Any, layers: int, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model={**LLAMA, "layers": layers}, steps=3)
    found = train(spec, root)
    assert_equal(found, one_process(spec), 1e-10)
    (blocks,) = _reported(found, "plan", "stage_blocks")
    assert [edge for part in blocks for edge in part][1:-1:2] == [part[0] for part in blocks[1:]]
    assert blocks[-1][1] == layers
    (bubble,) = _reported(found, "plan", "bubble_simulated")
    assert 0 < bubble < 1


@pytest.mark.parametrize("layout", TIED, ids=str)
def test_tied_embeddings_equal_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    family = GPT2 if layout["schedule"] == "1f1b" else LLAMA
    spec = make_spec(layout, model={**family, "layers": 5, "tied": True}, steps=3)
    found = train(spec, root)
    assert "embed.weight" in found["parameters"] and "head.weight" not in found["parameters"]
    assert_equal(found, one_process(spec), 1e-10)


@pytest.mark.parametrize(
    "layout", [_layout(2, "dualpipev"), _layout(2, "interleaved-zb"), _layout(2, "zb-h1"), _layout(4, "zb-h2")], ids=str
)
@pytest.mark.parametrize("mode", ["full", "selective"])
def test_recompute_changes_nothing(layout: Any, mode: str, root: Path, make_spec: Make, one_process: Make) -> None:
    changes = {"model": {**LLAMA, "layers": 5}, "steps": 3}
    found = train(make_spec(layout, recompute=mode, **changes), root)
    assert_equal(found, one_process(make_spec({}, **changes)), 1e-10)


@pytest.mark.parametrize(
    ("schedule", "blocks", "more"),
    [
        ("1f1b", [0, 5], {}),
        ("interleaved", [2, 1, 1, 1], {}),
        ("zbv", [1, 2, 2, 0], {}),
        ("1f1b", [1, 4], {"zero": 1}),
        ("zb-h1", [1, 4], {}),
        ("zb-h2", [4, 1], {"zero": 2}),
        ("dualpipev", [1, 2, 1, 1], {}),
    ],
)
def test_stages_have_the_blocks_that_a_layout_says(
    schedule: str, blocks: list[int], more: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    layout = {"pipeline": {"stages": 2, "blocks": blocks}, "schedule": schedule, **({"data": 2} | more if more else {})}
    spec = make_spec(layout, model={**LLAMA, "layers": 5}, steps=3)
    found = train(spec, root)
    assert_equal(found, one_process(spec), 1e-10)
    (edges,) = _reported(found, "plan", "stage_blocks")
    assert [last - first for first, last in edges] == blocks


def test_a_last_stage_of_the_head_alone(root: Path, make_spec: Make, one_process: Make) -> None:
    layouts = [_layout(2, "1f1b"), _layout(2, "1f1b", tensor=2), _layout(2, "1f1b", data=2, zero=3), _layout(2, "zbv")]
    for layout in layouts:
        spec = make_spec(layout, model={**LLAMA, "layers": 4, "vocab": 2048}, steps=3)
        found = train(spec, root)
        (blocks,) = _reported(found, "plan", "stage_blocks")
        assert blocks[-1] == [4, 4]
        assert_equal(found, one_process(spec), 1e-10)


def test_a_tied_checkpoint_goes_from_one_process_to_a_pipeline_and_back(
    root: Path, make_spec: Make, one_process: Make
) -> None:
    model = {**GPT2, "layers": 4, "tied": True}
    whole = one_process(make_spec({}, model=model))
    both_ends = _layout(2, "zbv"), _layout(2, "zbv", data=2, zero=3)
    resume = None
    for number, layout in enumerate(({}, _layout(2, "1f1b", data=2, zero=1), *both_ends, {"data": 2})):
        spec = make_spec(layout, model=model, checkpoint={"every": number + 1, "keep": 5, "final": False})
        found = train(spec, root, f"tied-{number}", resume=resume)
        np.testing.assert_allclose(found["losses"], whole["losses"][number:], rtol=1e-10)
        for name, value in whole["parameters"].items():
            np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)
        resume = root / "checkpoints" / f"tied-{number}" / f"step-{number + 1:08d}"


@pytest.mark.parametrize("pipeline", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_runs_is_the_exported_order(schedule: str, pipeline: int, root: Path, make_spec: Make) -> None:
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.pipeline_parallel.schedule import planned_order
    from shardyard.strategies.pipeline_parallel.schedule_order import peaks

    spec = make_spec({"pipeline": pipeline, "schedule": schedule, "micro_batch": 2}, model={**LLAMA, "layers": 9})
    ranks = spawn(_record, pipeline, spec, str(root))
    order = planned_order(Layout.model_validate(spec["layout"]), 8)
    for rank, found in enumerate(ranks):
        assert found["exported"] == [[str(action) for action in actions] for actions in order]
        assert found["executed"] == found["exported"][rank]
        assert found["held"] == peaks(order)[rank]
    if schedule == "1f1b":  # p − i + 1 on 1-based rank i
        assert [found["held"] for found in ranks] == [pipeline - rank for rank in range(pipeline)]
    if schedule in ("zb-h1", "zb-h2"):
        assert {found["held"] for found in ranks} == {pipeline if schedule == "zb-h1" else 2 * pipeline - 1}


def _record(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> dict[str, Any]:
    """Run two steps, the second one watched: what is called on the stages, and how many micro-batches' activations are alive."""
    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run, TrainSpec
    from shardyard.workers.trainer.build import build

    train_spec = TrainSpec.model_validate(spec)
    run = Run(job="order", train=train_spec, checkpoints=Path(root) / "checkpoints", cache=Path(root) / "cache")
    pipeline = build(run, make_mesh(train_spec.layout, group(rank, world, port))).parallel.runner
    tokens = torch.arange(16 * 32).view(16, 32) % 256
    pipeline.train(tokens, tokens)
    executed: list[str] = []
    alive = _Alive()
    for stage in pipeline.stages:
        _watch(stage, executed, alive)
    pipeline.train(tokens, tokens)
    exported = [[str(action) for action in actions] for actions in pipeline.order]
    return {"executed": executed, "exported": exported, "held": alive.most}


class _Alive:
    """Which (stage, micro-batch) have saved activations: a count of the living tensors that their forward passes saved."""

    def __init__(self) -> None:
        self.saved: Counter[tuple[int, int]] = Counter()
        self.most = 0

    def forward(self, key: tuple[int, int], run: Callable[[], Any]) -> Any:
        import torch

        class Kept:
            def __init__(self, tensor: Any) -> None:
                self.tensor = tensor

        def keep(tensor: Any) -> Any:
            kept = Kept(tensor.detach())  # with its graph, an output that its own node saves would keep itself alive
            self.saved[key] += 1
            self.most = max(self.most, len(self.saved))
            weakref.finalize(kept, self._free, key)
            return kept

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept.tensor):
            return run()

    def _free(self, key: tuple[int, int]) -> None:
        self.saved[key] -= 1
        if not self.saved[key]:
            del self.saved[key]


def _watch(stage: Any, executed: list[str], alive: _Alive) -> None:
    """Note each call of what a schedule calls on a stage; sends and receives count where there is something to send."""
    number = stage.stage_index
    forward, backward, weight = stage.forward_one_chunk, stage.backward_one_chunk, stage.backward_weight_one_chunk

    def note(kind: str, microbatch: int) -> None:
        executed.append(f"{number}{kind}{microbatch}")

    def watched_forward(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        note("F", microbatch)
        return alive.forward((number, microbatch), lambda: forward(microbatch, *args, **kwargs))

    def watched_backward(microbatch: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
        note("B" if full_backward else "I", microbatch)
        return backward(microbatch, *args, full_backward=full_backward, **kwargs)

    def watched_weight(microbatch: int, *args: Any, **kwargs: Any) -> Any:
        note("W", microbatch)
        return weight(microbatch, *args, **kwargs)

    stage.forward_one_chunk, stage.backward_one_chunk = watched_forward, watched_backward
    stage.backward_weight_one_chunk = watched_weight
    for kind, name in (("RECV_F", "fwd_recv"), ("SEND_F", "fwd_send"), ("RECV_B", "bwd_recv"), ("SEND_B", "bwd_send")):
        _watch_messages(stage, f"get_{name}_ops", lambda microbatch, kind=kind: note(kind, microbatch))


def _watch_messages(stage: Any, name: str, note: Callable[[int], None]) -> None:
    get = getattr(stage, name)

    def watched(microbatch: int) -> Any:
        operations = get(microbatch)
        if operations:
            note(microbatch)
        return operations

    setattr(stage, name, watched)
