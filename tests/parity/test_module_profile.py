"""A costly block gets a stage of its own where times decide, all ranks agree on the times, and the result is that of one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2, LLAMA
from harness.ranks import group, spawn, train
from harness.sleeping import SLEEPING

from shardyard.strategies.cost.stage_balance import ModuleCosts
from shardyard.strategies.pipeline_parallel.module_profile import agreed

Make = Callable[..., Any]

MODULE = (
    SLEEPING
    + """
class Block(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return x + Sleep.apply(torch.tanh(self.inner(x)), self.seconds, self.seconds)

class Uneven(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.embed = nn.Embedding(256, 8)
        self.blocks = nn.ModuleDict({str(i): Block(each) for i, each in enumerate(seconds)})
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 256)

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))
"""
)
#: Seconds of a costly block's pass, much more than those of the other modules.
SLEEP = 0.02


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "uneven.py").write_text(MODULE)

    def model(*seconds: float) -> dict[str, Any]:
        return {"import": "uneven:Uneven", "code": str(folder), "args": {"seconds": list(seconds)}}

    return model


def _layout(stages: int, split: str = "profile", **more: Any) -> dict[str, Any]:
    return {"pipeline": {"stages": stages, "split": split}, **more}


def _plan(run: Any) -> dict[str, Any]:
    (plan,) = [data for kind, data in run["events"] if kind == "plan"]
    return plan


def _times(run: Any) -> list[str]:
    """What the plan has of the profile."""
    return [reason for reason in _plan(run).get("choices", ()) if reason.startswith("layout.pipeline is split by")]


def _blocks(run: Any) -> list[int]:
    return [stop - start for start, stop in _plan(run)["stage_blocks"]]


def _assert_equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-8)
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


def test_a_costly_block_gets_a_stage_of_its_own(root: Path, make_spec: Make, one_process: Make, uneven: Make) -> None:
    more = {"model": uneven(SLEEP, 0, 0, 0), "steps": 2, "eval": {"batches": 1}}
    by_times, by_size = (train(make_spec(_layout(2, split), **more), root) for split in ("profile", "flops"))
    assert _blocks(by_times) == [1, 3]
    assert _blocks(by_size) == [4, 0]  # the head has the most weights
    assert len(_times(by_times)) == 1 and _times(by_size) == []
    for found in (by_times, by_size):
        _assert_equal(found, one_process(make_spec({}, **more)))


@pytest.mark.parametrize(
    ("layout", "seconds", "blocks"),
    [
        (_layout(4), [0, 0, 0, 0, 0, 1, 0, 0], None),
        (_layout(2, schedule="zbv"), [1, 0, 0, 0, 0], None),
        (_layout(2, schedule="interleaved"), [0, 1, 0, 0, 0], None),
        (_layout(2, schedule="gpipe", data=2, zero=3), [0, 0, 1, 1], [3, 1]),
    ],
    ids=["four-stages", "zbv", "interleaved", "gpipe-zero3"],
)
def test_every_schedule_equals_one_process(
    layout: Any,
    seconds: list[int],
    blocks: list[int] | None,
    root: Path,
    make_spec: Make,
    one_process: Make,
    uneven: Make,
) -> None:
    more = {"model": uneven(*(SLEEP * each for each in seconds)), "steps": 2, "eval": {"batches": 1}}
    found = train(make_spec(layout, **more), root)
    assert sum(_blocks(found)) == len(seconds) and blocks in (None, _blocks(found))
    _assert_equal(found, one_process(make_spec({}, **more)))


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        (_layout(2), {"model": {**GPT2, "layers": 5, "tied": True}, "recompute": "full"}),
        (_layout(2, data=2, zero=3), {"model": {**LLAMA, "layers": 5}, "loss": {"chunk_tokens": 16}}),
        (_layout(2, schedule="dualpipev"), {"model": {**LLAMA, "layers": 5}}),
    ],
    ids=["tied-recompute", "zero3-chunks", "dualpipev"],
)
def test_a_model_of_equal_blocks_equals_one_process(
    layout: Any, changes: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    found = train(make_spec(layout, steps=3, **changes), root)
    (times,) = _times(found)
    assert "blocks 5 of " in times
    _assert_equal(found, one_process(make_spec({}, steps=3, **changes)))


def test_2bw_is_split_by_times_too(root: Path, make_spec: Make) -> None:
    by_times, by_size = (
        train(make_spec(_layout(2, split, schedule="2bw"), steps=3), root, f"2bw-{split}")
        for split in ("profile", "flops")
    )
    assert len(_times(by_times)) == 1
    _assert_equal(by_times, by_size)


def test_all_ranks_have_the_same_times_and_leave_no_trace(root: Path, make_spec: Make, uneven: Make) -> None:
    spec = make_spec(_layout(2, data=2), model=uneven(SLEEP, 0, 0))
    first, *others = spawn(_profiled, 4, spec, str(root))
    assert all(found == first for found in others)
    _, blocks, _, messages = first["costs"]
    assert blocks[0] >= 1.99e9 * SLEEP  # nanoseconds, forward and backward
    assert len(messages) == 4 and min(*first["costs"][1], *messages, first["costs"][0], first["costs"][2]) > 0
    assert first["changed"] == []


def _profiled(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> dict[str, Any]:
    """The costs that this rank measured, and the parameters of its model that are not those of a model that was not measured."""
    from dataclasses import astuple

    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run, TrainSpec
    from shardyard.workers.trainer.build import build

    train_spec = TrainSpec.model_validate(spec)
    run = Run(job="profiled", train=train_spec, checkpoints=Path(root) / "checkpoints", cache=Path(root) / "cache")
    mesh = make_mesh(train_spec.layout, group(rank, world, port))
    parts = build(run, mesh)
    assert parts.profile is not None
    flops = train_spec.layout.with_(pipeline_split="flops")
    plain = build(run.model_copy(update={"train": train_spec.model_copy(update={"layout": flops})}), mesh)
    before, after = ({p.name: p.tensor for p in one.parallel.data.shards} for one in (plain, parts))
    shared = before.keys() & after.keys()
    changed = [name for name in shared if not torch.equal(before[name], after[name]) or after[name].grad is not None]
    return {"costs": astuple(parts.profile), "changed": changed}


def test_the_agreed_times_are_those_of_the_rank_in_the_middle() -> None:
    costs = [ModuleCosts(n, (10 * n, 5), 7, (n, n, 3 - n)) for n in (2, 3, 1)]
    assert agreed(costs) == ModuleCosts(2, (20, 5), 7, (2, 2, 1))
    assert agreed(costs[:2]) == ModuleCosts(2, (20, 5), 7, (2, 2, 0))
