"""A loss computed in chunks trains every layout as the plain loss trains one process, in float64 to 1e-10."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2, LLAMA, MIXTURE
from harness.ranks import train

from .test_layouts import assert_equal

Make = Callable[..., Any]

TERMS = {"label_smoothing": 0.1, "z_loss": 1e-2}
TIED: dict[str, Any] = {**LLAMA, "tied": True}

#: Model, layout. The chunks of 24 tokens do not divide a micro-batch evenly.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one-process": (LLAMA, {"micro_batch": 8}),
    "data2": (TIED, {"data": 2, "micro_batch": 4}),
    "data2-zero1": (TIED, {"data": 2, "zero": 1, "micro_batch": 4}),
    "data2-zero2": (LLAMA, {"data": 2, "zero": 2, "micro_batch": 4}),
    "data2-zero3": (LLAMA, {"data": 2, "zero": 3, "micro_batch": 4}),
    "data2-zero3-tied": (TIED, {"data": 2, "zero": 3, "micro_batch": 4}),
    "data4-zero3-shard2": (LLAMA, {"data": 4, "zero": 3, "shard": 2}),
    "tensor2": (LLAMA, {"tensor": 2}),
    "tensor2-whole-tied": (TIED, {"tensor": 2, "sequence": False}),
    "tensor2-data2-zero2": (LLAMA, {"tensor": 2, "data": 2, "zero": 2, "micro_batch": 4}),
    "tensor2-data2-zero3-tied": (TIED, {"tensor": 2, "data": 2, "zero": 3}),
    "context2-zero1": (LLAMA, {"context": 2, "zero": 1}),
    "1f1b2": (LLAMA, {"pipeline": 2}),
    "1f1b2-tied-data2-zero1": (TIED, {"pipeline": 2, "data": 2, "zero": 1}),
    "1f1b2-tensor2-zero3": (LLAMA, {"pipeline": 2, "tensor": 2, "data": 2, "zero": 3}),
    "interleaved2-data2-zero2": (LLAMA, {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 2}),
    "zbv2": (LLAMA, {"pipeline": 2, "schedule": "zbv"}),
    "zbv2-tied-tensor2": (TIED, {"pipeline": 2, "schedule": "zbv", "tensor": 2}),
    "zbv2-data2-zero3": (LLAMA, {"pipeline": 2, "schedule": "zbv", "data": 2, "zero": 3}),
    "expert2": (MIXTURE, {"data": 2, "expert": 2}),
    "gpt2-zero3": (GPT2, {"data": 2, "zero": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_one_process_with_whole_logits(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    model, layout = CASES[name]
    changes = {"model": model, "steps": 3}
    expected = one_process(make_spec({}, loss=TERMS, **changes))
    assert_equal(train(make_spec(layout, loss={**TERMS, "chunk_tokens": 24}, **changes), root), expected, 1e-10)


@pytest.mark.parametrize("layout", [{}, {"data": 2, "zero": 3}, {"tensor": 2}, {"pipeline": 2}], ids=str)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_follows_float32(
    precision: str, layout: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 6, "eval": {"batches": 1}}
    found = train(make_spec(layout, precision=precision, loss={"chunk_tokens": 8}, **changes), root)
    expected = one_process(make_spec({}, precision="fp32", **changes))
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.01)


def test_one_chunk_changes_no_bit(root: Path, make_spec: Make, one_process: Make) -> None:
    found = train(make_spec({}, loss={"chunk_tokens": 16 * 32}), root)
    assert found["losses"] == one_process(make_spec({}))["losses"]
