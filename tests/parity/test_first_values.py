"""A rank draws or reads what it holds, once, at a start; and nothing where its state is restored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.hf_models import save_hf_model
from harness.models import LLAMA, MIXTURE
from harness.ranks import group, spawn, train, train_rank

Make = Callable[..., Any]

#: Layouts of two ranks, with every kind of param shard between them.
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "data": ({"data": 2}, LLAMA),
    "zero1": ({"data": 2, "zero": 1}, LLAMA),
    "zero3": ({"data": 2, "zero": 3}, LLAMA),
    "tensor": ({"tensor": 2}, LLAMA),
    "zbv-tied": ({"pipeline": 2, "schedule": "zbv"}, {**LLAMA, "tied": True}),
    "expert": ({"data": 2, "expert": 2}, MIXTURE),
}


def test_a_rank_draws_its_own_param_shards_and_all_values_are_set(root: Path, make_spec: Make) -> None:
    from shardyard.workers.spec import Run, TrainSpec

    specs = [
        TrainSpec.model_validate(make_spec(layout, model=model, precision=precision))
        for layout, model in LAYOUTS.values()
        for precision in ("fp32", "bf16")
    ]
    runs = [Run(job="first", train=spec, checkpoints=root / "none", cache=root / "cache") for spec in specs]
    for found in spawn(_began, 2, [run.model_dump_json() for run in runs]):
        for spec, (unset, drawn, held, missing) in zip(specs, found, strict=True):
            assert unset, (spec.layout, "parameters have values before they are set")
            assert not missing, (spec.layout, missing)
            assert drawn == held, (spec.layout, "elements drawn, elements held")


def _began(rank: int, world: int, port: int, orders: list[str]) -> list[Any]:
    """For each run: whether no parameter had a value before; elements drawn; elements of matrices held; parameters without values."""
    import math

    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.models import init
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.build import allocate

    draw, drawn, found = init.normal_values, list[int](), list[Any]()
    init.normal_values = lambda key, std, where, device: (
        drawn.append(math.prod(where.size)) or draw(key, std, where, device)  # type: ignore[func-returns-value]
    )
    device = group(rank, world, port)
    for run in map(Run.model_validate_json, orders):
        parts = allocate(run, make_mesh(run.train.layout, device))
        values = [value.detach() for part in parts.parallel.parts for value in part.parameters()]
        local = [value.to_local() if hasattr(value, "to_local") else value for value in values]
        unset = all(torch.isnan(value).all() for value in local)
        drawn.clear()
        assert parts.first_values is not None
        parts.first_values.set(parts.parallel.data)
        held = sum(shard.tensor.numel() for shard in parts.parallel.data.shards if shard.is_matrix)
        missing = [tuple(value.shape) for value in local if torch.isnan(value).any()]
        found.append((bool(unset), sum(drawn), held, missing))
    return found


def test_what_resumes_draws_nothing(root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2, "zero": 1}, precision="bf16", checkpoint={"every": 3})
    whole = train(spec, root, "draws")
    newest = max((root / "checkpoints" / "draws").iterdir())
    (newest / "manifest.json").unlink()  # as if the save of step 5 had been cut off
    resumed = train(spec, root, "draws", work=_without_drawing)
    assert resumed["losses"] == whole["losses"][3:]
    with pytest.raises(RuntimeError, match="nothing may be drawn"):
        train(spec, root, "draws-again", work=_without_drawing)


def _without_drawing(rank: int, world: int, port: int, orders: str) -> Any:
    from shardyard.workers.models import init

    def refuse(*_: Any) -> Any:
        raise AssertionError("nothing may be drawn")

    init.normal_values = refuse
    return train_rank(rank, world, port, orders)


def test_what_resumes_reads_no_weights_of_a_published_model(root: Path, make_spec: Make) -> None:
    folder = save_hf_model(root, "llama", "float32")
    spec = make_spec({"data": 2, "zero": 3}, model={"from": str(folder)}, precision="fp32", checkpoint={"every": 3})
    whole = train(spec, root, "published")
    (max((root / "checkpoints" / "published").iterdir()) / "manifest.json").unlink()
    files = [file.rename(file.with_suffix(".gone")) for file in folder.glob("*.safetensors")]
    try:
        assert train(spec, root, "published")["losses"] == whole["losses"][3:]
    finally:
        for file in files:
            file.rename(file.with_suffix(".safetensors"))
