"""A mixture of experts, spread over ranks or not, equals one process in float64 to 1e-10: losses, norms, validations, every parameter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.layouts import EXPERT_LAYOUTS
from harness.models import MIXTURE
from harness.ranks import train, train_rank

Make = Callable[..., Any]


def assert_equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-8)
    assert found["parameters"].keys() == expected["parameters"].keys()
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)
    assert _evaluations(found) == pytest.approx(_evaluations(expected), rel=1e-10)


def _evaluations(run: Any) -> list[float]:
    names = ("loss", "balance_loss", "router_z_loss", "dropped")
    return [data[name] for kind, data in run["events"] if kind == "eval" for name in names]


@pytest.mark.parametrize("layout", EXPERT_LAYOUTS.values(), ids=EXPERT_LAYOUTS.keys())
def test_float64_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=MIXTURE, steps=4)
    assert_equal(train(spec, root), one_process(spec))


@pytest.mark.parametrize(
    "layout",
    [
        {"data": 2, "expert": 2, "micro_batch": 2},
        {"context": 2},
        {"tensor": 2},
        {"context": 4, "ulysses": 2, "expert": 2},
        {"pipeline": 2, "data": 2, "expert": 2},
        {"context": 2, "tensor": 2, "expert": 2},
        {"context": 2, "pipeline": 2, "data": 2, "expert": 4, "zero": 1},
        {"context": 2, "data": 2, "zero": 3, "micro_batch": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("softmax", ["chosen", "all"])
def test_dropped_tokens_equal_one_process(
    layout: Any, softmax: str, root: Path, make_spec: Make, one_process: Make
) -> None:
    spec = make_spec(layout, model={**MIXTURE, "capacity_factor": 0.75, "router_softmax": softmax}, steps=4)
    whole = one_process(spec)
    assert_equal(train(spec, root), whole)
    assert whole["losses"] != one_process({**spec, "model": MIXTURE})["losses"]


@pytest.mark.parametrize("blocks", [[0, 4], [4, 0]], ids=str)
def test_a_stage_without_mixtures_takes_part_in_their_means(
    blocks: list[int], root: Path, make_spec: Make, one_process: Make
) -> None:
    """It did not, and the others waited for it in the first validation."""
    spec = make_spec({"pipeline": {"stages": 2, "blocks": blocks}, "data": 2, "expert": 2}, model=MIXTURE, steps=2)
    assert_equal(train(spec, root), one_process(spec))


def _with_fixed_sizes(*arguments: Any) -> Any:
    from shardyard.strategies import expert_parallel

    expert_parallel.fixed_sizes = lambda _: True
    return train_rank(*arguments)


@pytest.mark.parametrize(
    "layout",
    [
        {"data": 2, "expert": 2, "micro_batch": 2},
        {"context": 4, "ulysses": 2, "expert": 2},
        {"context": 2, "tensor": 2, "expert": 2},
        {"data": 2, "pipeline": 2, "expert": 2, "zero": 1},
    ],
    ids=str,
)
def test_buffers_of_fixed_size_equal_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    """What GPUs exchange if there is a capacity."""
    spec = make_spec(layout, model={**MIXTURE, "capacity_factor": 0.75}, steps=4)
    assert_equal(train(spec, root, work=_with_fixed_sizes), one_process(spec))


MEMORY_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({"data": 4, "expert": 2}, {"recompute": "full"}),
    "full-zero3": ({"data": 4, "expert": 2, "zero": 3}, {"recompute": "full"}),
    "selective": ({"data": 2, "expert": 2, "zero": 1}, {"recompute": "selective"}),
    "selective-tensor": ({"data": 2, "expert": 2, "tensor": 2}, {"recompute": "selective"}),
    "compile": ({"data": 2, "expert": 2}, {"compile": True}),
}


@pytest.mark.parametrize("name", MEMORY_OPTIONS)
def test_recompute_and_compile_change_nothing(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = MEMORY_OPTIONS[name]
    found = train(make_spec(layout, model=MIXTURE, **changes), root)
    assert_equal(found, one_process(make_spec({}, model=MIXTURE)))


ROUND = [{"data": 4, "expert": 2, "zero": 1}, {}, {"data": 2, "expert": 2, "tensor": 2, "zero": 3}, {"data": 2}]
ROUND += [{"data": 4, "expert": 2, "zero": 3, "shard": 2}]


@pytest.mark.parametrize("source", range(len(ROUND)))
def test_a_checkpoint_continues_on_the_next_layout(source: int, root: Path, make_spec: Make, one_process: Make) -> None:
    first, then = ROUND[source], ROUND[(source + 1) % len(ROUND)]
    saving = make_spec(first, model=MIXTURE, checkpoint={"every": 3, "final": False})
    saved = train(saving, root, f"experts-{source}")
    (checkpoint,) = [data for kind, data in saved["events"] if kind == "checkpoint"]
    resumed = train(make_spec(then, model=MIXTURE), root, f"experts-then-{source}", resume=Path(checkpoint["path"]))
    whole = one_process(make_spec({}, model=MIXTURE))
    np.testing.assert_allclose(resumed["losses"], whole["losses"][3:], rtol=1e-10)
    for name, value in whole["parameters"].items():
        np.testing.assert_allclose(resumed["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_follows_float32(precision: str, root: Path, make_spec: Make, one_process: Make) -> None:
    changes = {"model": MIXTURE, "optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    layout = {"data": 2, "expert": 2, "zero": 1}
    found = train(make_spec(layout, precision=precision, **changes), root)
    expected = one_process(make_spec({}, precision="fp32", **changes))
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.01)
