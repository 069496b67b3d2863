"""DeepSeek-V3's mixture (shared experts, biases that keep loads even) equals a textbook's, and every layout equals one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.layouts import EXPERT_LAYOUTS
from harness.models import BIASED, MIXTURE
from harness.ranks import train
from harness.textbook_mixture import MixtureTextbook

from shardyard.workers.models.init import initial_value
from shardyard.workers.models.registry import make
from shardyard.workers.spec import TrainSpec

Make = Callable[..., Any]


def biases_of(run: Any) -> dict[str, Any]:
    return {name: value for name, value in run["parameters"].items() if name.endswith("expert_bias")}


def assert_equal(found: Any, expected: Any, since: int = 0) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"][since:], rtol=1e-10)
    np.testing.assert_allclose(found["norms"], expected["norms"][since:], rtol=1e-8)
    assert found["parameters"].keys() == expected["parameters"].keys()
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)
    for name, value in biases_of(expected).items():
        assert found["parameters"][name].tolist() == value.tolist(), name


def textbook_spec(make_spec: Make) -> dict[str, Any]:
    """Of an odd number of steps: biases that outweigh what affinities differ by go up and down in turn, and are zero after an even one."""
    spec = make_spec({}, model=BIASED, steps=7, precision="fp64")
    return {
        **spec,
        "data": {**spec["data"], "validation": 0.1},
        "optimizer": {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0},
        "schedule": {"name": "cosine", "warmup": 2, "min_ratio": 0.1},
        "eval": {"every": 3, "batches": 1},
    }


def first_values(spec: dict[str, Any]) -> dict[str, Any]:
    arch = TrainSpec.model_validate(spec).architecture(256)
    assert arch is not None
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in make(arch).named_parameters()}
    return {name: initial_value(name, shape, spec["seed"], arch).double() for name, shape in shapes.items()}


def test_equals_the_textbook(root: Path, make_spec: Make) -> None:
    spec = textbook_spec(make_spec)
    found, textbook = train(spec, root, "biased-textbook"), MixtureTextbook(spec, first_values(spec))
    expected = textbook.run()
    np.testing.assert_allclose(found["losses"], expected.losses, rtol=1e-12)
    np.testing.assert_allclose(found["norms"], expected.norms, rtol=1e-11)
    validations = {data["step"]: data["loss"] for kind, data in found["events"] if kind == "eval"}
    assert validations == pytest.approx(expected.validations, rel=1e-12)
    for name, value in textbook.model.values.items():
        ours = found["parameters"][name.replace("/", ".")]
        np.testing.assert_allclose(ours, value.detach().numpy(), rtol=0, atol=1e-11, err_msg=name)
    for layer, bias in enumerate(textbook.model.biases.numpy()):
        np.testing.assert_allclose(found["parameters"][f"blocks.{layer}.mlp.expert_bias"], bias, rtol=0, atol=1e-15)
        assert bias.any(), layer


def test_biases_change_the_choice_and_balance_is_measured(root: Path, make_spec: Make, one_process: Make) -> None:
    whole, still = (one_process(make_spec({}, model={**BIASED, "bias_update_speed": speed})) for speed in (0.01, 0.0))
    assert whole["losses"][0] == still["losses"][0]
    assert whole["losses"][1:] != still["losses"][1:]
    last = [data["balance_loss"] for kind, data in whole["events"] if kind == "eval"][-1]
    assert last == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("layout", EXPERT_LAYOUTS.values(), ids=EXPERT_LAYOUTS.keys())
def test_float64_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=BIASED)
    assert_equal(train(spec, root), one_process(spec))


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor": 2, "data": 2, "zero": 3},
        {"pipeline": 2, "schedule": "dualpipev", "data": 2, "expert": 2},
        {"pipeline": 2, "schedule": "interleaved-zb", "data": 2, "expert": 2},
        {"pipeline": 2, "schedule": "gpipe", "data": 2},
    ],
    ids=str,
)
def test_other_layouts_equal_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=BIASED)
    assert_equal(train(spec, root), one_process(spec))


@pytest.mark.parametrize("layout", [{"data": 2, "expert": 2}, {"context": 2, "tensor": 2, "expert": 2}], ids=str)
def test_dropped_tokens_count(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model={**BIASED, "capacity_factor": 0.75})
    assert_equal(train(spec, root), one_process(spec))


MEMORY_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({"data": 2, "expert": 2, "micro_batch": 2}, {"recompute": "full"}),
    "full-zero3": ({"data": 4, "expert": 2, "zero": 3}, {"recompute": "full"}),
    "full-zbv": ({"pipeline": 2, "schedule": "zbv"}, {"recompute": "full"}),
    "selective-zb-h1": ({"pipeline": 2, "schedule": "zb-h1", "data": 2, "expert": 2}, {"recompute": "selective"}),
    "selective-tensor": ({"data": 2, "expert": 2, "tensor": 2}, {"recompute": "selective"}),
    "compile": ({"data": 2, "expert": 2}, {"compile": True}),
    "compile-recompute": ({"data": 2}, {"compile": True, "recompute": "full"}),
    "offload": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 0.5}}),
    "offload-parameters": ({"data": 2, "zero": 3}, {"offload": {"parameters": True}}),
}


@pytest.mark.timeout(900)  # each rank may run the C++ compiler
@pytest.mark.parametrize("name", MEMORY_OPTIONS)
def test_recompute_compile_and_offload_count_each_token_once(
    name: str, root: Path, make_spec: Make, one_process: Make
) -> None:
    layout, changes = MEMORY_OPTIONS[name]
    found = train(make_spec(layout, model=BIASED, **changes), root, patience_s=600)
    assert_equal(found, one_process(make_spec({}, model=BIASED)))


ROUND = [{"data": 2, "expert": 2}, {"tensor": 2}, {"data": 2, "zero": 3, "micro_batch": 2}, {"pipeline": 2}]


@pytest.mark.parametrize("source", range(len(ROUND)))
def test_a_checkpoint_brings_its_biases_to_the_next_layout(
    source: int, root: Path, make_spec: Make, one_process: Make
) -> None:
    saving = make_spec(ROUND[source], model=BIASED, checkpoint={"every": 3, "final": False})
    saved = train(saving, root, f"biased-{source}")
    (checkpoint,) = [data for kind, data in saved["events"] if kind == "checkpoint"]
    then = make_spec(ROUND[(source + 1) % len(ROUND)], model=BIASED)
    resumed = train(then, root, f"biased-then-{source}", resume=Path(checkpoint["path"]))
    assert_equal(resumed, one_process(make_spec({}, model=BIASED)), since=3)


def test_a_checkpoint_without_biases_is_refused(root: Path, make_spec: Make) -> None:
    saved = train(make_spec({}, model=MIXTURE, steps=1, checkpoint={"final": True}), root, "without-biases")
    (checkpoint,) = [data for kind, data in saved["events"] if kind == "checkpoint"]
    model = {**BIASED, "shared_experts": 0}
    with pytest.raises(RuntimeError, match=r"model\.balance: the checkpoint's model has balance loss"):
        train(make_spec({}, model=model, steps=2), root, "with-biases", resume=Path(checkpoint["path"]))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_follows_float32(precision: str, root: Path, make_spec: Make, one_process: Make) -> None:
    changes = {"model": BIASED, "optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    found = train(make_spec({"data": 2, "expert": 2, "zero": 1}, precision=precision, **changes), root)
    expected = one_process(make_spec({}, precision="fp32", **changes))
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.01)
    assert {value.dtype.name for value in biases_of(found).values()} == {"float32"}
