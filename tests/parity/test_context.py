"""Sequences that are cut over ranks, by every method and with every other axis: the same as one process, in float64 to 1e-10."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.layouts import BOTH, CONTEXT_LAYOUTS, GATHER, RING, SCORES, ULYSSES, WINDOWS
from harness.models import GPT2, MIXTURE
from harness.ranks import assert_checkpoints_fit, train

Make = Callable[..., Any]


@pytest.mark.parametrize("layout", CONTEXT_LAYOUTS.values(), ids=CONTEXT_LAYOUTS.keys())
def test_float64_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, steps=4)
    _assert_equal(train(spec, root), one_process(spec))


OF_GPT2: dict[str, dict[str, Any]] = {
    "ring2": RING,
    "ulysses4": {"context": 4, "ulysses": 4},
    "ulysses2-ring2-zero2": {**BOTH, "zero": 2},
    "ulysses2-tensor2": {**ULYSSES, "tensor": 2},
    "ulysses2-tensor2-data2-zero3": {**ULYSSES, "tensor": 2, "data": 2, "zero": 3},
    "ulysses2-ring2-tensor2": {**BOTH, "tensor": 2},
    "ring2-tensor2-1f1b2": {**RING, "tensor": 2, "pipeline": 2},
    "windows2-zero1": {**WINDOWS, "zero": 1},
    "gather2-tensor2": {**GATHER, "tensor": 2},
}


@pytest.mark.parametrize("layout", OF_GPT2.values(), ids=OF_GPT2.keys())
def test_gpt2_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=GPT2, steps=4)
    _assert_equal(train(spec, root), one_process(spec))


OF_MIXTURE: dict[str, dict[str, Any]] = {
    "ring2": RING,
    "ulysses2-expert2": {**ULYSSES, "expert": 2},
    "ulysses2-ring2-expert4-zero1": {**BOTH, "expert": 4, "zero": 1},
    "ring2-data2-expert2-zero3": {**RING, "data": 2, "expert": 2, "zero": 3},
    "ring2-tensor2-1f1b2-expert2": {**RING, "tensor": 2, "pipeline": 2, "expert": 2},
}


@pytest.mark.parametrize("layout", OF_MIXTURE.values(), ids=OF_MIXTURE.keys())
def test_a_mixture_of_experts_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=MIXTURE, steps=4)
    _assert_equal(train(spec, root), one_process(spec))


MEMORY_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": (BOTH, {"recompute": "full"}),
    "full-zbv": ({**RING, "pipeline": 2, "schedule": "zbv"}, {"recompute": "full"}),
    "selective": (BOTH, {"recompute": "selective"}),
    "selective-tensor2-zero3": ({**RING, "tensor": 2, "zero": 3}, {"recompute": "selective"}),
    "full-windows": (WINDOWS, {"recompute": "full"}),
    "selective-gather": (GATHER, {"recompute": "selective"}),
    "selective-scores": (SCORES, {"recompute": "selective"}),
    "full-gather": (GATHER, {"recompute": "full"}),
    "activations-offloaded": ({**RING, "tensor": 2}, {"offload": {"activations": True}}),
}


@pytest.mark.parametrize(("layout", "memory_options"), MEMORY_OPTIONS.values(), ids=MEMORY_OPTIONS.keys())
def test_what_saves_memory_changes_nothing(
    layout: Any, memory_options: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    _assert_equal(train(make_spec(layout, **memory_options), root), one_process(make_spec({})))


def test_compiled_blocks_change_nothing(root: Path, make_spec: Make, one_process: Make) -> None:
    _assert_equal(train(make_spec({**BOTH, "zero": 1}, compile=True), root), one_process(make_spec({})))


@pytest.mark.parametrize(("first", "then"), [(BOTH, {"data": 2, "zero": 3}), ({"tensor": 2}, RING)], ids=str)
def test_checkpoints_fit(first: Any, then: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    assert_checkpoints_fit(first, then, root, make_spec, one_process)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_low_precision_follows_float32(precision: str, root: Path, make_spec: Make, one_process: Make) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    found = train(make_spec(BOTH, precision=precision, **changes), root)
    expected = one_process(make_spec({}, precision="fp32", **changes))
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5 if precision == "fp32" else 0.01)


def test_a_module_that_keeps_its_attention_is_refused(root: Path, make_spec: Make, tmp_path: Path) -> None:
    (tmp_path / "keeps_attention.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Embedding(256, 256)\n"
    )
    model = {"import": "keeps_attention:make", "code": str(tmp_path)}
    with pytest.raises(RuntimeError, match=r"has no spread_context.*Set layout.context to 1"):
        train(make_spec(RING, model=model), root)


BIDIRECTIONAL = """
import torch
from torch import nn
from torch.nn import functional


def attend(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, 16), nn.Embedding(32, 16)
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 256)
        self.attend = attend
        self.positions = lambda length, device: torch.arange(length, device=device)

    def spread_context(self, spread, positions):
        self.attend, self.positions = spread(self.attend, causal=False), positions

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(self.positions(tokens.shape[1], tokens.device))
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return self.head(x + self.attend(q, k, v).transpose(1, 2).flatten(2))


def make():
    return Encoder()
"""


@pytest.mark.parametrize("layout", [{**BOTH, "data": 2, "zero": 1}, SCORES, GATHER, WINDOWS], ids=str)
def test_a_bidirectional_module_equals_one_process(
    layout: Any, root: Path, make_spec: Make, one_process: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = (
        tmp_path_factory.getbasetemp() / "bidirectional"
    )  # one folder, so that one run of one process serves all layouts
    code.mkdir(exist_ok=True)
    (code / "encoder.py").write_text(BIDIRECTIONAL)
    spec = make_spec(layout, model={"import": "encoder:make", "code": str(code)})
    _assert_equal(train(spec, root), one_process(spec))


def _assert_equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-8)
    assert found["parameters"].keys() == expected["parameters"].keys()
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)
    evaluations = [[d["loss"] for kind, d in run["events"] if kind == "eval"] for run in (found, expected)]
    np.testing.assert_allclose(*evaluations, rtol=1e-10)
