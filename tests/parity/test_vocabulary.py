"""Any vocabulary trains at any tensor degree as it does on one process; checkpoints and exports hold it whole, and nothing else.

All ids of the vocabulary are targets: with the bytes of a text the rows of the last ranks would be none.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2, LLAMA, MIXTURE
from harness.ranks import train
from harness.token_texts import write_token_text

from .test_layouts import assert_equal

Make = Callable[..., Any]

#: What 2 and 3 divide, but for the vocabulary.
SIX: dict[str, Any] = {**LLAMA, "dim": 36, "heads": 6, "kv_heads": 6, "hidden": 48}
FOUR: dict[str, Any] = {**LLAMA, "kv_heads": 4}
TIED: dict[str, Any] = {**FOUR, "tied": True}
TERMS = {"label_smoothing": 0.1, "z_loss": 1e-2}

#: Words, model, layout. Of 9 words the four ranks have 3, 3, 3 and none.
CASES: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "tensor2": (257, FOUR, {"tensor": 2}),
    "tensor2-tied": (257, TIED, {"tensor": 2}),
    "tensor3-tied": (257, {**SIX, "tied": True}, {"tensor": 3}),
    "tensor3-plain": (257, SIX, {"tensor": 3, "sequence": False}),
    "gpt2-tensor4-plain": (257, {**GPT2, "tied": True}, {"tensor": 4, "sequence": False}),
    "few": (9, FOUR, {"tensor": 4}),
    "few-tied": (9, TIED, {"tensor": 4}),
    "few-data2": (9, TIED, {"tensor": 4, "data": 2, "micro_batch": 2}),
    "few-zero1": (9, TIED, {"tensor": 4, "data": 2, "zero": 1}),
    "few-zero2": (9, FOUR, {"tensor": 4, "data": 2, "zero": 2, "micro_batch": 2}),
    "few-zero3": (9, FOUR, {"tensor": 4, "data": 2, "zero": 3}),
    "few-zero3-tied": (9, TIED, {"tensor": 4, "data": 2, "zero": 3}),
    "fewer-than-replicas-zero3": (3, FOUR, {"data": 4, "zero": 3}),
    "fewer-than-replicas-tensor2-zero3": (5, TIED, {"tensor": 2, "data": 4, "zero": 3}),
    "few-pipeline2-tied": (9, TIED, {"tensor": 4, "pipeline": 2}),
    "data2-tied": (257, TIED, {"tensor": 2, "data": 2, "micro_batch": 2}),
    "data2-zero1-tied": (257, TIED, {"tensor": 2, "data": 2, "zero": 1}),
    "data2-zero2": (257, FOUR, {"tensor": 2, "data": 2, "zero": 2, "micro_batch": 2}),
    "data2-zero3-tied": (257, TIED, {"tensor": 2, "data": 2, "zero": 3}),
    "data2-zero3-plain": (257, FOUR, {"tensor": 2, "sequence": False, "data": 2, "zero": 3}),
    "context2-tied": (257, TIED, {"tensor": 2, "context": 2}),
    "expert2": (257, MIXTURE, {"tensor": 2, "data": 2, "expert": 2}),
    "1f1b-tied": (257, TIED, {"tensor": 2, "pipeline": 2}),
    "interleaved": (257, FOUR, {"tensor": 2, "pipeline": 2, "schedule": "interleaved"}),
    "zbv-tied": (257, TIED, {"tensor": 2, "pipeline": 2, "schedule": "zbv"}),
    "dualpipev-zero3-tied": (257, TIED, {"tensor": 2, "pipeline": 2, "schedule": "dualpipev", "data": 2, "zero": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    vocab, model, layout = CASES[name]
    given = {"model": model, "data": write_token_text(root, vocab), "loss": TERMS, "global_batch": 8, "steps": 3}
    expected = one_process(make_spec({}, **given))
    assert_equal(train(make_spec(layout, **given), root), expected, 1e-10)
    plan = dict(expected["events"])["plan"]
    assert plan["parameters"] == sum(value.size for value in expected["parameters"].values())


@pytest.mark.parametrize("model", [FOUR, TIED], ids=["own", "tied"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_few_words_in_bf16_follow_float32(
    zero: int, model: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    given = {"model": model, "data": write_token_text(root, 9), "global_batch": 8, "steps": 3}
    given |= {"optimizer": {"name": "sgd", "lr": 0.1}, "eval": {"batches": 1}}
    expected = one_process(make_spec({}, precision="fp32", **given))
    found = train(make_spec({"tensor": 4, "data": 2, "zero": zero}, precision="bf16", **given), root)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-3)


@pytest.mark.parametrize("tied", [False, True])
def test_goes_on_at_other_degrees_and_exports_the_vocabulary(tied: bool, root: Path, make_spec: Make) -> None:
    from safetensors.numpy import load_file

    from shardyard.workers.huggingface.export import export
    from shardyard.workers.storage.open_folder import folder_at

    given = {
        "model": {**SIX, "layers": 2, "tied": tied},
        "data": write_token_text(root, 257),
        "global_batch": 8,
        "schedule": {"name": "constant", "warmup": 2},  # whatever the number of steps
        "checkpoint": {"every": 4, "keep": 9},
        "eval": {"batches": 1},
    }
    alone = train(make_spec({}, steps=5, **given), root, f"words-{tied}-alone")
    for past, steps, layout in ((0, 2, {"tensor": 2}), (2, 4, {"tensor": 3}), (4, 5, {})):
        run = train(make_spec(layout, steps=steps, **given), root, f"words-{tied}")
        np.testing.assert_allclose(run["losses"], alone["losses"][past:steps], rtol=1e-10)
    files = []
    for job in (f"words-{tied}-alone", f"words-{tied}"):
        checkpoint = folder_at(root / "checkpoints" / job / "step-00000004")
        out = export(checkpoint, folder_at(root / f"{job}-exported"), dtype="fp64").path
        files.append(load_file(Path(out) / "model.safetensors"))
    expected, found = files
    assert found.keys() == expected.keys()
    assert found["model.embed_tokens.weight"].shape == (257, 36)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-10, err_msg=name)
