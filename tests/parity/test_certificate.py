"""Certificates of layouts that round messages or have late gradients: a right run is equal to its one process, a wrong one is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.layouts import QUANTISED_LAYOUTS
from harness.models import GPT2, LLAMA
from harness.ranks import group, spawn, train, train_rank
from harness.textbook_packed import save_records

from shardyard.workers.certificate.comparison import Comparison, compare
from shardyard.workers.certificate.exact_spec import exact
from shardyard.workers.certificate.references import check_comparable, with_blocks
from shardyard.workers.certificate.training import Training, read
from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

STEPS = 4
#: A difference that no order of sums makes.
FAR = 1e-6


def in_one_process(rank: int, world: int, port: int, orders: str) -> list[Any]:
    """The events of the reference."""
    from shardyard.workers.certificate.reference import train_reference
    from shardyard.workers.trainer.instruments import Instruments

    device, events = group(rank, world, port), list[Any]()
    run = Run.model_validate_json(orders)
    train_reference(run, device, lambda kind, data: events.append((kind, data)), Instruments())
    return events


def on_layout(spec: TrainSpec, root: Path, name: str, work: Any = None) -> Training:
    found = train(spec.model_dump(mode="json", by_alias=True), root, name, work=work)
    return read(found["events"], str(root / "checkpoints" / name))


def expected_of(spec: TrainSpec, root: Path, name: str) -> Training:
    checkpoints = spec.checkpoints(str(root / "checkpoints"), name)
    run = Run(job=name, train=spec, checkpoints=checkpoints, cache=root / "cache")
    (events,) = spawn(in_one_process, 1, run.model_dump_json())
    return read(events, str(root / "checkpoints" / name))


def certified(given: dict[str, Any], root: Path, name: str, work: Any = None) -> dict[str, Comparison]:
    """The comparisons of a spec, whose ranks do `work`."""
    train_spec = TrainSpec.model_validate(given)
    check_comparable(train_spec)
    spec = exact(train_spec, STEPS)
    found = on_layout(spec, root, f"{name}-layout", work)
    expected = expected_of(with_blocks(spec, found.plan), root, f"{name}-reference")
    return {one.what: one for one in compare(found, expected)}


BOTH = {"weights": "int8", "gradients": "int4", "block": 32}
GRADIENTS = {"data": 2, "zero": 1, "zero_plus_plus": {"gradients": "int4", "block": 32}}
ROUNDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "data2-zero1": (GRADIENTS, {"model": LLAMA}),
    **{name: (layout, {"model": LLAMA}) for name, layout in QUANTISED_LAYOUTS.items()},
    "gpt2-tied-data3-uneven": ({"data": 3, "zero": 3, "zero_plus_plus": BOTH}, {"model": {**GPT2, "tied": True}}),
    "gpt2-tied-tensor2": (
        {"tensor": 2, "data": 2, "zero": 3, "micro_batch": 4, "zero_plus_plus": BOTH},
        {"model": {**GPT2, "tied": True}},
    ),
    "gpt2-tensor2-zero2": (
        {"tensor": 2, "data": 2, "zero": 2, "zero_plus_plus": {"gradients": "int8", "block": 32}},
        {"model": GPT2},
    ),
    "weights-ring2": ({"data": 2, "context": 2, "zero": 3, "zero_plus_plus": {"weights": "int8"}}, {"model": LLAMA}),
    "recomputed-offloaded": (
        {"data": 2, "zero": 2, "zero_plus_plus": {"gradients": "int8"}},
        {"model": LLAMA, "recompute": "full", "offload": {"optimizer": 0.5}},
    ),
    "smoothed-sgd": (GRADIENTS, {"model": LLAMA, "optimizer": {"name": "sgd", "lr": 0.1}, "loss": {"label_smoothing": 0.1}}),
}  # fmt: skip


def assert_equal(found: dict[str, Comparison]) -> None:
    assert all(one.equal and one.compared for one in found.values()), found


@pytest.mark.parametrize("name", ROUNDED)
def test_a_layout_that_rounds_is_equal(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = ROUNDED[name]
    assert_equal(certified(make_spec(layout, **changes), root, f"rounded-{name}"))


def test_packed_documents_are_rounded_too(root: Path, make_spec: Make) -> None:
    data = {**save_records(root), "documents": "packed", "seq_len": 32}
    layout = {"data": 2, "zero": 3, "micro_batch": 2, "zero_plus_plus": BOTH}
    assert_equal(certified(make_spec(layout, model=LLAMA, data=data), root, "rounded-packed"))


#: A module with a frozen matrix, and with one of fewer rows than ranks, which ZeRO-3 divides by columns.
THIN = """
import torch
from torch import nn


class Thin(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
        self.base = nn.Parameter(torch.randn(8, 8), requires_grad=False)
        self.row = nn.Parameter(torch.randn(1, 8))

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens) @ self.base) * self.row)


def thin():
    torch.manual_seed(0)
    return Thin()
"""


def test_frozen_weights_and_shards_of_columns_are_rounded_too(root: Path, make_spec: Make) -> None:
    (root / "thin_module.py").write_text(THIN)
    spec = make_spec(
        {"data": 2, "zero": 3, "zero_plus_plus": BOTH}, model={"import": "thin_module:thin", "code": str(root)}
    )
    assert_equal(certified(spec, root, "rounded-thin"))


def _quantizer(*arguments: Any, changed: Callable[..., tuple[Any, ...]] | None = None, levels: int = 0) -> Any:
    """Train with a quantizer of other levels, or made of other arguments."""
    from shardyard.strategies.data_parallel.quantized_blocks import BlockQuantizer

    made = BlockQuantizer.__init__

    def wrong(self: Any, *given: Any) -> None:
        made(self, *(given if changed is None else changed(*given)))
        self._levels += levels

    BlockQuantizer.__init__ = wrong  # type: ignore[method-assign]
    return train_rank(*arguments)  # type: ignore[arg-type]


def fewer_levels(*arguments: Any) -> Any:
    return _quantizer(*arguments, levels=-1)


def longer_blocks(*arguments: Any) -> Any:
    return _quantizer(*arguments, changed=lambda bits, block, sizes: (bits, 2 * block, sizes))


def blocks_across_parameters(*arguments: Any) -> Any:
    return _quantizer(*arguments, changed=lambda bits, block, sizes: (bits, block, [sum(sizes)]))


def truncates(*arguments: Any) -> Any:
    import torch

    torch.Tensor.round_ = torch.Tensor.trunc_  # type: ignore[method-assign, assignment]
    return train_rank(*arguments)  # type: ignore[arg-type]


def sums_at_once(*arguments: Any) -> Any:
    """Train without the second rounding, of the sums of nodes."""
    from shardyard.strategies.data_parallel.zero_plus_plus import QuantizedReduction
    from shardyard.strategies.mesh import REPLICA

    made = QuantizedReduction.__init__

    def wrong(self: Any, mesh: Any, sizes: Any) -> None:
        made(self, mesh, sizes)
        self._inside, self._across = mesh.group(REPLICA), None

    QuantizedReduction.__init__ = wrong  # type: ignore[method-assign]
    return train_rank(*arguments)  # type: ignore[arg-type]


NODES = {"data": 4, "zero": 1, "zero_plus_plus": {"gradients": "int8", "node": 2, "block": 32}}
WRONG: dict[str, tuple[dict[str, Any], Callable[..., Any]]] = {
    "fewer-levels": (GRADIENTS, fewer_levels),
    "longer-blocks": (GRADIENTS, longer_blocks),
    "blocks-across-parameters": ({"data": 2, "zero": 3, "zero_plus_plus": {"weights": "int8"}}, blocks_across_parameters),
    "truncates": (GRADIENTS, truncates),
    "sums-at-once": (NODES, sums_at_once),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_quantizer_is_not_equal(name: str, root: Path, make_spec: Make) -> None:
    layout, work = WRONG[name]
    found = certified(make_spec(layout, model=LLAMA), root, f"wrong-{name}", work)
    assert not found["losses"].equal and not found["parameters"].equal
    for what in ("losses", "parameters"):
        difference = found[what].difference
        assert difference is not None and difference > FAR, found


LATE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "2bw2": ({"pipeline": 2, "schedule": "2bw"}, {"model": LLAMA}),
    "2bw4-data2-tied": ({"pipeline": 4, "schedule": "2bw", "data": 2, "micro_batch": 1}, {"model": {**GPT2, "tied": True}}),
    "pipedream2": ({"pipeline": 2, "schedule": "pipedream", "data": 2}, {"model": LLAMA}),
    "pipedream4": ({"pipeline": 4, "schedule": "pipedream"}, {"model": GPT2}),
    "pipedream4-data2": ({"pipeline": 4, "schedule": "pipedream", "data": 2}, {"model": LLAMA}),
    "pipedream3-synchronised-tied": (
        {"pipeline": 3, "schedule": "pipedream", "vertical_sync": True},
        {"model": {**GPT2, "tied": True}},
    ),
    "pipedream2-by-times": ({"pipeline": {"stages": 2, "split": "profile"}, "schedule": "pipedream"}, {"model": LLAMA}),
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_a_schedule_with_late_gradients_is_equal(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = LATE[name]
    assert_equal(certified(make_spec(layout, **changes), root, f"late-{name}"))


def test_gradients_that_are_not_late_are_not_equal(root: Path, make_spec: Make) -> None:
    late = make_spec({"pipeline": 2, "schedule": "2bw"}, model=LLAMA)
    spec = exact(TrainSpec.model_validate(late), STEPS)
    flushed = spec.model_copy(update={"layout": spec.layout.with_(schedule="1f1b")})
    expected = expected_of(spec, root, "flushed-reference")
    found = {one.what: one for one in compare(on_layout(flushed, root, "flushed-layout"), expected)}
    assert not found["losses"].equal and not found["parameters"].equal
