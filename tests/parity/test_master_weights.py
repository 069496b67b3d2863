"""What the optimizer begins with is what the file holds, or what the seed gives, to the bit, in every kind of layout and precision."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.hf_models import save_hf_model
from harness.models import LLAMA, MIXTURE
from harness.ranks import group, spawn

Make = Callable[..., Any]

#: Kind → layout of two ranks.
LAYOUTS: dict[str, dict[str, Any]] = {
    "data": {"data": 2},
    "zero1": {"data": 2, "zero": 1},
    "zero2": {"data": 2, "zero": 2},
    "zero3": {"data": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "context": {"context": 2, "ulysses": 2},
    "pipeline": {"pipeline": 2},
    "zbv": {"pipeline": 2, "schedule": "zbv"},
}
LOW = ("bf16", "fp16")
#: Precisions of each layout: one, by turns, or both.
EACH = (1, len(LOW))


@pytest.mark.parametrize("each", EACH)
def test_masters_are_the_seeds_values(each: int, root: Path, make_spec: Make) -> None:
    from shardyard.workers.models.init import initial_value

    for model in ({**LLAMA, "tied": True}, MIXTURE):
        layouts = (
            LAYOUTS if model is not MIXTURE else {"expert": {"data": 2, "expert": 2}, "data": {"data": 2, "zero": 1}}
        )
        for case, arch, shards in _begun(root, make_spec, layouts, each, model=model):
            for name, shape, offset, found in shards:
                expected = _slice(initial_value(name, shape, 7, arch).numpy(), offset, found.shape)
                assert np.array_equal(found, expected), (case, name)


@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_masters_are_the_files_values(name: str, each: int, root: Path, make_spec: Make) -> None:
    folder = save_hf_model(root, name, "float32")
    for case, arch, shards in _begun(root, make_spec, LAYOUTS, each, model={"from": str(folder)}):
        for parameter, _, offset, found in shards:
            expected = _slice(_stored(folder, arch.family, parameter), offset, found.shape)
            assert np.array_equal(found, expected), (case, parameter)


def test_ranks_with_unequal_parts_keep_the_same_masters_on_the_host(root: Path, make_spec: Make) -> None:
    """Of a vocabulary of 257 one rank has a row more: a norm that both have is updated on the same kind of device."""
    from shardyard.workers.spec import Run, TrainSpec

    model = {**LLAMA, "dim": 64, "hidden": 256, "vocab": 257, "tied": False}
    layouts = ({"tensor": 2, "data": 2}, {"tensor": 2, "data": 2, "zero": 1})
    for share in (0.3, 0.5, 0.7):
        changes = {"model": model, "precision": "bf16", "offload": {"optimizer": share}, "overlap": {"bucket_mb": 0.05}}
        specs = [TrainSpec.model_validate(make_spec(layout, **changes)) for layout in layouts]
        runs = [Run(job="masters", train=spec, checkpoints=root / "none", cache=root / "cache") for spec in specs]
        first, second, *_ = spawn(_on_host, 4, [run.model_dump_json() for run in runs])
        assert first == second and all(first)


def _on_host(rank: int, world: int, port: int, orders: list[str]) -> list[set[str]]:
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.build import build

    device, found = group(rank, world, port), []
    for run in map(Run.model_validate_json, orders):
        built = build(run, make_mesh(run.train.layout, device))
        found.append({p.name for p in built.parallel.data.shards if p.on_device is not None})
    return found


def _begun(root: Path, make_spec: Make, layouts: dict[str, Any], each: int, **changes: Any) -> Iterator[Any]:
    """(layout and precision, architecture, shards of every rank) of jobs that have not trained yet."""
    from shardyard.workers.spec import Run, TrainSpec

    alone = [("alone", precision) for precision in (*LOW, "fp32")]
    divided = [(kind, low) for n, kind in enumerate(layouts) for low in (LOW[n % 2 :] + LOW)[:each]]
    for ranks, some, cases in ((1, {"alone": {}}, alone), (2, layouts, divided)):
        specs = [TrainSpec.model_validate(make_spec(some[kind], precision=low, **changes)) for kind, low in cases]
        runs = [Run(job="masters", train=spec, checkpoints=root / "none", cache=root / "cache") for spec in specs]
        everyone = spawn(_masters, ranks, [run.model_dump_json() for run in runs])
        for number, case in enumerate(cases):
            shards = [shard for rank in everyone for shard in rank[number]]
            assert shards and all(tensor.dtype == np.float32 for *_, tensor in shards), case
            yield case, specs[number].architecture(256), shards


def _masters(rank: int, world: int, port: int, orders: list[str]) -> list[Any]:
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.build import build

    device, found = group(rank, world, port), []
    for run in map(Run.model_validate_json, orders):
        built = build(run, make_mesh(run.train.layout, device))
        found.append([(p.name, p.shape, p.offset, p.tensor.numpy()) for p in built.parallel.data.shards])
    return found


def _slice(whole: Any, offset: Any, size: Any) -> Any:
    return whole[tuple(slice(start, start + length) for start, length in zip(offset, size, strict=True))]


def _stored(folder: Path, family: str, name: str) -> Any:
    """The parameter as the folder's files have it."""
    from safetensors.numpy import load_file

    from shardyard.workers.models.hf_config import place

    where = place(name, family)
    tensors = {key: value for file in folder.glob("*.safetensors") for key, value in load_file(file).items()}
    whole = tensors[
        where.name if where.name in tensors else "transformer.wte.weight"
    ]  # a tied head has none of its own
    rows = whole.T if where.transposed else whole
    return np.split(rows, where.parts)[where.part]
