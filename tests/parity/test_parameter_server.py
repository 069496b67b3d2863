"""Workers with parameter servers equal one process, and data parallelism bit for bit where both sum in the same order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.broken_model import broken_model
from harness.in_transit import coming_at_blocks, sent_during_passes
from harness.models import GPT2
from harness.ranks import assert_checkpoints_fit, group, spawn, train

from shardyard.workers.spec import Run, TrainSpec

from .test_layouts import assert_equal, evaluations

Make = Callable[..., Any]


def served(workers: int, servers: int, **more: Any) -> dict[str, Any]:
    return {"data": workers, "parameter_server": {"servers": servers}, **more}


def assert_same_bits(found: Any, expected: Any) -> None:
    assert found["losses"] == expected["losses"]
    assert found["norms"] == expected["norms"]
    assert all(np.array_equal(value, expected["parameters"][name]) for name, value in found["parameters"].items())
    assert evaluations(found) == evaluations(expected)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "alone": (served(1, 2, micro_batch=4), {}),
    "uneven": (served(3, 2), {}),
    "accumulate": (served(4, 3, micro_batch=2), {}),
    "gpt2": (served(2, 2), {"model": GPT2}),
    "tied": (served(2, 1), {"model": {**GPT2, "tied": True}, "overlap": {"bucket_mb": 0.01, "prefetch": 1}}),
    "recompute": (served(2, 1), {"recompute": "full", "overlap": {"bucket_mb": 0.01}}),
    "sgd": (served(2, 2), {"optimizer": {"name": "sgd", "lr": 0.1}}),
    "two-ranks": (served(1, 1), {}),
    "six-and-two": (served(6, 2, micro_batch=1), {"global_batch": 12}),
    "four-and-four": (served(4, 4), {"model": {**GPT2, "tied": True}}),
}


@pytest.mark.parametrize("name", CASES)
def test_float64_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = CASES[name]
    spec = make_spec(layout, steps=4, **changes)
    alone = {key: value for key, value in spec.items() if key not in ("recompute", "overlap")}
    assert_equal(train(spec, root), one_process(alone), 1e-10)


SAME_BITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "whole": ({}, {}),
    "micro-batches": ({"micro_batch": 4}, {}),
    "bf16": ({}, {"precision": "bf16"}),
    "fp16": ({}, {"precision": "fp16"}),
}


@pytest.mark.parametrize("name", SAME_BITS)
def test_two_workers_have_the_bits_of_data_parallelism(name: str, root: Path, make_spec: Make) -> None:
    """With clipping: a sum of two numbers has one order, and so has a norm that one rank computes."""
    layout, changes = SAME_BITS[name]
    found = train(make_spec(served(2, 1, **layout), **changes), root)
    assert_same_bits(found, train(make_spec({"data": 2, **layout}, **changes), root))


#: No norm of several servers decides an update, which gloo would sum in an order of its own.
UNCLIPPED = {"lr": 1e-2, "clip_norm": None}


@pytest.mark.parametrize(("precision", "near"), [("fp64", 1e-12), ("bf16", 1e-6)])
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (3, 1), (4, 4), (6, 2)])
def test_the_bits_are_those_of_one_process_with_a_micro_batch_per_worker(
    workers: int, servers: int, precision: str, near: float, root: Path, make_spec: Make
) -> None:
    """It sums the gradients of its micro-batches in the order in which servers sum those of workers. Losses are summed by gloo."""
    changes = {"precision": precision, "global_batch": 24, "steps": 4, "optimizer": UNCLIPPED}
    found = train(make_spec(served(workers, servers), **changes), root)
    alone = train(make_spec({"micro_batch": 24 // workers}, **changes), root)
    assert found["parameters"].keys() == alone["parameters"].keys()
    assert all(np.array_equal(value, alone["parameters"][name]) for name, value in found["parameters"].items())
    np.testing.assert_allclose(found["losses"], alone["losses"], rtol=near)
    assert evaluations(found) == pytest.approx(evaluations(alone), rel=near)


@pytest.mark.parametrize(
    ("first", "then"),
    [(served(2, 2), {"data": 2, "zero": 1}), ({"tensor": 2}, served(2, 1)), (served(2, 1), served(1, 3))],
    ids=["to-zero", "from-tensor", "to-more-servers"],
)
def test_checkpoints_fit_other_layouts(first: Any, then: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    """With the number of updates, which rank 0 writes: AdamW's corrections of the first steps depend on it."""
    assert_checkpoints_fit(first, then, root, make_spec, one_process)


def test_a_model_of_ones_own_is_served_from_its_own_values(root: Path, make_spec: Make, tmp_path: Path) -> None:
    (tmp_path / "served_model.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Embedding(256, 8), nn.Tanh(), nn.Linear(8, 256))\n"
    )
    model = {"import": "served_model:make", "code": str(tmp_path)}
    assert_same_bits(
        train(make_spec(served(2, 1), model=model), root), train(make_spec({"data": 2}, model=model), root)
    )


def test_a_loss_that_is_not_finite_is_traced_to_a_worker(root: Path, make_spec: Make, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="first in the output of 1 on ranks 0, 1"):
        train(make_spec(served(2, 1), model=broken_model(tmp_path)), root)


def test_all_ranks_together_send_2_psi_per_worker(root: Path, make_spec: Make) -> None:
    """In bf16 a gradient is 4 bytes, its sum's dtype, and a value 2."""
    run = train(make_spec(served(3, 2), steps=2, precision="bf16", eval={"batches": 1}), root)
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    psi = sum(value.size for value in run["parameters"].values())
    sent = found["traffic_sum"]["parameter_server"]["send"]
    assert (sent["elements"], sent["bytes"]) == (2 * psi * 3, (4 + 2) * psi * 3)


def test_messages_are_in_transit_while_workers_compute(root: Path, make_spec: Make) -> None:
    """Gradients of later blocks during the backward pass, values of later blocks when one begins."""
    small = {"overlap": {"bucket_mb": 0.01}, "eval": {"batches": 1}}
    spec = TrainSpec.model_validate(make_spec(served(2, 1), steps=5, **small))
    run = Run(job="in-transit", train=spec, checkpoints=root / "checkpoints", cache=root / "cache")
    first, second, _ = spawn(in_transit, 3, run.model_dump_json())
    assert first == second
    pushed, pulled = first
    assert pushed > 0
    assert pulled > 0


def in_transit(rank: int, world: int, port: int, orders: str) -> tuple[int, int]:
    """How many messages a worker pushed before its passes had ended, and how many were still to be pulled when its blocks began."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.instruments import Instruments

    run = Run.model_validate_json(orders)
    built = allocate(run, make_mesh(run.train.layout, group(rank, world, port)))
    serves = built.mesh.serves
    pushed = [] if serves else sent_during_passes(built.parallel)
    pulled = [] if serves else coming_at_blocks(built.parallel)
    assemble(built, lambda *_: None, Instruments()).run()
    return sum(pushed), sum(pulled)
