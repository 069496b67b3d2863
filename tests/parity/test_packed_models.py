"""Packed documents with experts, and with modules of a user's own: a textbook's loop over documents alone, and every layout."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from harness.layouts import BOTH, EXPERT_LAYOUTS, SCORES, ULYSSES
from harness.models import BIASED, MIXTURE
from harness.ranks import train
from harness.textbook_packed import PackedMixture, PackedTextbook, save_records
from torch import nn

from .test_expert_balance import biases_of, first_values
from .test_expert_parallel import assert_equal

Make = Callable[..., Any]

#: Some tokens are dropped; the others have biases that move.
KINDS = {"capacity": {**MIXTURE, "capacity_factor": 0.75}, "biases": BIASED}


@pytest.fixture(scope="module")
def packed_spec(root: Path, make_spec: Make) -> Make:
    """`packed_spec(layout, **changes)`: `make_spec` with packed documents, every number that a textbook reads written out."""
    common = {
        "data": {**save_records(root), "documents": "packed", "seq_len": 32, "validation": 0.3},
        "optimizer": {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0},
        "schedule": {"name": "cosine", "warmup": 2, "min_ratio": 0.1},
        "loss": {"label_smoothing": 0.0, "z_loss": 0.0},
        "eval": {"every": 2, "batches": 1},
        "steps": 4,
    }
    return lambda layout, **changes: make_spec(layout, **{**common, **changes})


def assert_textbook(found: Any, expected: Any, parameters: dict[str, Any]) -> None:
    """Losses, norms, validations and last parameters, to 1e-12."""
    np.testing.assert_allclose(found["losses"], expected.losses, rtol=1e-12)
    np.testing.assert_allclose(found["norms"], expected.norms, rtol=1e-11)
    validations = {data["step"]: data["loss"] for kind, data in found["events"] if kind == "eval"}
    assert validations == pytest.approx(expected.validations, rel=1e-12)
    for name, value in parameters.items():
        np.testing.assert_allclose(found["parameters"][name], value.detach().numpy(), rtol=0, atol=1e-11, err_msg=name)


def test_experts_equal_the_textbook(root: Path, packed_spec: Make) -> None:
    spec = packed_spec({}, model=BIASED)
    found, textbook = train(spec, root, "packed-experts"), PackedMixture(spec, first_values(spec))
    expected = textbook.run()
    assert_textbook(found, expected, {name.replace("/", "."): value for name, value in textbook.model.values.items()})
    for layer, bias in enumerate(textbook.model.biases.numpy()):
        np.testing.assert_allclose(found["parameters"][f"blocks.{layer}.mlp.expert_bias"], bias, rtol=0, atol=1e-15)


EXPERTS: dict[str, dict[str, Any]] = {
    **{
        name: EXPERT_LAYOUTS[name]
        for name in (
            "data2-zero3",
            "tensor2",
            "zbv2",
            "data4-expert2-zero1",
            "accumulate-expert2-zero3",
            "tensor2-expert2",
            "tensor2-expert2-whole",
            "pipeline2-expert2",
            "zbv2-expert2",
            "context2-expert2",
            "context2-data2-expert2-zero3",
            "data4-expert2-groups2",
            "context2-tensor2-pipeline2-expert2",
        )
    },
    "ulysses2-ring2-expert2": {**BOTH, "expert": 2},
    "scores2-tensor2": {**SCORES, "tensor": 2},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXPERTS)
def test_experts_equal_one_process(kind: str, name: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    spec = packed_spec(EXPERTS[name], model=KINDS[kind])
    found, expected = train(spec, root), one_process(spec)
    assert_equal(found, expected)
    assert {name: value.tolist() for name, value in biases_of(found).items()} == {
        name: value.tolist() for name, value in biases_of(expected).items()
    }


def test_a_capacity_drops_tokens_of_documents(packed_spec: Make, one_process: Make) -> None:
    whole, all_kept = (one_process(packed_spec({}, model=model)) for model in (KINDS["capacity"], MIXTURE))
    dropped = [data["dropped"] for kind, data in whole["events"] if kind == "eval"]
    assert min(dropped) > 0 and max(dropped) < 1
    assert whole["losses"] != all_kept["losses"]
    assert {data["dropped"] for kind, data in all_kept["events"] if kind == "eval"} == {0}


MEMORY_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full-zero3": ({"data": 2, "expert": 2, "zero": 3}, {"recompute": "full"}),
    "selective-tensor": ({"data": 2, "expert": 2, "tensor": 2}, {"recompute": "selective"}),
    "full-zbv": ({"pipeline": 2, "schedule": "zbv"}, {"recompute": "full"}),
}


@pytest.mark.parametrize("name", MEMORY_OPTIONS)
def test_recompute_counts_each_token_once(name: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    layout, changes = MEMORY_OPTIONS[name]
    assert_equal(train(packed_spec(layout, model=BIASED, **changes), root), one_process(packed_spec({}, model=BIASED)))


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_experts_equal_one_process(kind: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    spec = packed_spec({"data": 2, "expert": 2}, model=KINDS[kind])
    assert_equal(train({**spec, "compile": True}, root), one_process(spec))


OWN = '''
import torch
from torch import nn
from torch.nn import functional


def attention(q, k, v, starts=None):
    """Causal attention over [batch, heads, seq, size], within documents that start at `starts` [batch, seq]."""
    places = torch.arange(q.shape[2])
    seen = places <= places.unsqueeze(1)
    if starts is not None:
        seen = (seen & (places >= starts.unsqueeze(-1))).unsqueeze(1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def first_places(length, device):
    return torch.arange(length, device=device)


class Own(nn.Module):
    """One layer of attention with two heads, whose size divides nothing."""

    def __init__(self, width):
        super().__init__()
        self.embed, self.places = nn.Embedding(256, width), nn.Embedding(64, width)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 256)
        self.attend, self.positions = attention, first_places

    def spread_context(self, spread, positions):
        self.attend, self.positions = spread(self.attend), positions

    def forward(self, tokens, starts=None):
        places = self.positions(tokens.shape[1], tokens.device)
        within = {} if starts is None else {"starts": starts[:, :-1]}
        x = self.embed(tokens) + self.places(places if starts is None else places - starts[:, places])
        q, k, v = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        return self.head(x + self.attend(q, k, v, **within).transpose(1, 2).flatten(2))


def make(width=14):
    return Own(width)


class Ignores(Own):
    def forward(self, tokens, **others):
        return super().forward(tokens)


def ignores():
    return Ignores(14)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed-code")
    (folder / "own_packed.py").write_text(OWN)
    return folder


class OwnTextbook(PackedTextbook):
    """The module of the file, on documents alone: never with starts."""

    def make_model(self) -> nn.Module:
        given = importlib.util.spec_from_file_location("own_packed", Path(self.spec["model"]["code"]) / "own_packed.py")
        assert given is not None and given.loader is not None
        module = importlib.util.module_from_spec(given)
        given.loader.exec_module(module)
        torch.manual_seed(self.spec["seed"])
        model: nn.Module = module.make().double()
        inner = model.forward
        model.forward = lambda input_ids, use_cache: SimpleNamespace(logits=inner(input_ids))
        return model


@pytest.fixture(scope="module")
def own_spec(folder: Path, packed_spec: Make) -> Make:
    return lambda layout, factory="make": packed_spec(
        layout, model={"import": f"own_packed:{factory}", "code": str(folder)}
    )


@pytest.mark.parametrize(
    "layout",
    [
        {"data": 2},
        {"data": 4, "zero": 2, "micro_batch": 2},
        {"data": 2, "zero": 3},
        {"context": 2},
        {**ULYSSES, "data": 2},
    ],
    ids=str,
)
def test_a_module_of_your_own_equals_the_textbook(layout: Any, root: Path, own_spec: Make) -> None:
    spec = own_spec(layout)
    textbook = OwnTextbook(spec)
    expected = textbook.run()
    assert_textbook(train(spec, root, "packed-own"), expected, dict(textbook.model.named_parameters()))


def test_a_module_that_ignores_documents_is_refused(root: Path, own_spec: Make) -> None:
    with pytest.raises(RuntimeError, match="takes no argument `starts`"):
        train(own_spec({}, "ignores"), root)
