"""A costly block gets a stage of its own where times decide, all ranks agree on the times, and the result is that of one process."""

import shutil
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2, LLAMA
from harness.ranks import group, spawn, train
from harness.sleeping import SLEEPING
from harness.textbook_packed import save_records

from shardyard.strategies.cost.stage_balance import ModuleCosts
from shardyard.strategies.module_profile import agreed

from .test_fp8 import exact

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
    (gain,) = [one for one in _plan(by_times)["choices"] if one.startswith("Stages of blocks × replicas")]
    assert "1 × 1, 3 × 1 take" in gain and "4 × 2 would take" in gain  # two replicas of all halve the costly block
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
        (_layout(2, tensor=2), {"model": {**LLAMA, "layers": 5, "tied": True}, "recompute": "selective"}),
        (_layout(2, tensor=2, sequence=False, schedule="zbv"), {"model": {**GPT2, "layers": 5}}),
        (_layout(2, context=2), {"model": {**LLAMA, "layers": 5}}),
        (_layout(2, context=2, ulysses=2, data=2, zero=3), {"model": {**GPT2, "layers": 5}}),
        (_layout(2, tensor=2, context=2), {"model": {**LLAMA, "layers": 5}, "loss": {"chunk_tokens": 16}}),
        (_layout(2, tensor={"mode": "2d", "shape": [2, 2]}), {"model": {**LLAMA, "layers": 5}}),
    ],
    ids=[
        "tied-recompute",
        "zero3-chunks",
        "dualpipev",
        "tensor-tied",
        "tensor-zbv",
        "ring",
        "ulysses-zero3",
        "tensor-ring-chunks",
        "grid",
    ],
)
def test_a_model_of_equal_blocks_equals_one_process(
    layout: Any, changes: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    found = train(make_spec(layout, steps=3, **changes), root)
    (times,) = _times(found)
    assert "blocks 5 of " in times
    _assert_equal(found, one_process(make_spec({}, steps=3, **changes)))


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
def test_compiled_blocks_equal_one_process(root: Path, make_spec: Make, one_process: Make) -> None:
    found = train(make_spec(_layout(2), steps=3, compile=True), root)
    assert len(_times(found)) == 1
    _assert_equal(found, one_process(make_spec({}, steps=3)))


def test_fp8_equals_one_process(root: Path, make_spec: Make) -> None:
    more = {"precision": "fp8", "steps": 3}
    found, alone = (
        train(make_spec({**layout, "micro_batch": 4}, **more), root, work=exact) for layout in (_layout(2), {})
    )
    assert len(_times(found)) == 1
    _assert_equal(found, alone)


def test_packed_documents_are_measured_within_their_masks(root: Path, make_spec: Make) -> None:
    data = {**save_records(root), "documents": "packed", "seq_len": 32, "validation": 0.3}
    spec = make_spec(_layout(2, micro_batch=4), data=data)
    for calls in spawn(_masked, 2, spec, str(root)):
        assert len(calls) == ROUNDS  # of the one block that stands for its equals
        assert {shape for shape, _ in calls} == {(4, 32)}
        assert all(documents > 4 for _, documents in calls)  # most rows have several
    assert len(_times(train(spec, root, "packed"))) == 1


#: Passes of a module that is measured: those before the timed ones, and the timed ones.
ROUNDS = 7


def _masked(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> list[tuple[tuple[int, ...], int]]:
    """The shape of the starts of every attention while a model is built, and the number of documents in them."""
    from shardyard.workers.models import attention

    calls, true = [], attention.packed_attention

    def watched(q: Any, k: Any, v: Any, starts: Any) -> Any:
        calls.append((tuple(starts.shape), sum(len(set(row)) for row in starts.tolist())))
        return true(q, k, v, starts)

    attention.packed_attention = watched
    _built(rank, world, port, spec, root)
    return calls


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
    _, blocks, _, messages, gradients = first["costs"]
    assert blocks[0] >= 1.99e9 * SLEEP  # nanoseconds, forward and backward
    assert len(messages) == 4 and min(*first["costs"][1], *messages, first["costs"][0], first["costs"][2]) > 0
    assert first["changed"] == []
    elements = (256 * 8, *[8 * 8 + 8] * 3, 2 * 8 + 8 * 256 + 256)
    assert gradients == tuple(round(max(gradients) * one / max(elements)) for one in elements)


def test_divided_modules_are_measured_as_they_are_divided(root: Path, make_spec: Make) -> None:
    """The messages of gradients are of what a rank has: half of every matrix, and whole norms."""
    spec = make_spec(_layout(2, tensor=2))
    first, *others = spawn(_profiled, 4, spec, str(root))
    assert all(found == first for found in others)
    gradients = first["costs"][-1]
    dim, hidden, keys = LLAMA["dim"], LLAMA["hidden"], LLAMA["dim"] * LLAMA["kv_heads"] // LLAMA["heads"]
    block = (2 * dim * dim + 2 * dim * keys + 3 * dim * hidden) // 2 + 2 * dim
    elements = (256 * dim // 2, *[block] * LLAMA["layers"], 256 * dim // 2 + dim)
    assert gradients == tuple(round(max(gradients) * one / max(elements)) for one in elements)
    assert first["changed"] == []


def _built(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> tuple[Any, Any, Any]:
    """The parts of a run, and the run and the mesh of which they are."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run, TrainSpec
    from shardyard.workers.trainer.build import build

    train_spec = TrainSpec.model_validate(spec)
    run = Run(job="profiled", train=train_spec, checkpoints=Path(root) / "checkpoints", cache=Path(root) / "cache")
    mesh = make_mesh(train_spec.layout, group(rank, world, port))
    return build(run, mesh), run, mesh


def _profiled(rank: int, world: int, port: int, spec: dict[str, Any], root: str) -> dict[str, Any]:
    """The costs that this rank measured, and the parameters of its model that are not those of a model that was not measured."""
    import torch

    from shardyard.workers.trainer.build import build

    parts, run, mesh = _built(rank, world, port, spec, root)
    assert parts.profile is not None
    flops = run.train.layout.with_(pipeline_split="flops")
    plain = build(run.model_copy(update={"train": run.train.model_copy(update={"layout": flops})}), mesh)
    before, after = ({p.name: p.tensor for p in one.parallel.data.shards} for one in (plain, parts))
    shared = before.keys() & after.keys()
    changed = [name for name in shared if not torch.equal(before[name], after[name]) or after[name].grad is not None]
    return {"costs": astuple(parts.profile), "changed": changed}


def test_the_agreed_times_are_those_of_the_rank_in_the_middle() -> None:
    costs = [ModuleCosts(n, (10 * n, 5), 7, (n, n, 3 - n), (n, 1, 1, 4 - n)) for n in (2, 3, 1)]
    assert agreed(costs) == ModuleCosts(2, (20, 5), 7, (2, 2, 1), (2, 1, 1, 2))
    assert agreed(costs[:2]) == ModuleCosts(2, (20, 5), 7, (2, 2, 0), (2, 1, 1, 1))
