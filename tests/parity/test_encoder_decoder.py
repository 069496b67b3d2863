"""A pipeline over an encoder and a decoder, and over any module with fields, equals one process, also from one layout to another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import train

from .test_layouts import assert_equal, evaluations

Make = Callable[..., Any]

#: So low that every step is clipped.
CLIP_NORM = 0.05

LANGUAGE = Path(__file__).parents[2] / "examples" / "language"

MODULE = '''
import torch
from torch import nn


class Masked(nn.Module):
    """Stages pass on numbers and which of them count; each uses `scale`, and draws for dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.embed = nn.Embedding(64, 6)
        self.blocks = nn.ModuleDict({str(number): nn.Linear(6, 6) for number in range(4)})
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(6, 64)

    def forward(self, fields, x=None, counts=None):
        tokens = fields["source"]
        if self.embed is not None:
            x, counts = self.embed(tokens).transpose(0, 1), tokens % 3 > 0
        for block in self.blocks.values():
            x = x + self.dropout(torch.tanh(block(x)) * self.scale)
            self.log("size", x.abs().mean())
        if self.head is None:
            return x, counts
        losses = nn.functional.cross_entropy(self.head(x).permute(1, 2, 0), tokens, reduction="none")
        return (losses * counts).mean(1) * self.scale


def masked(dropout=0.0):
    return Masked(dropout)
'''

#: A source whose samples have other lengths for validation, or after the first step.
SOURCE = """
from texts import reversals


class Changing:
    samples, validation_samples = None, 64

    def __init__(self, validation, later):
        self.read, self.later, self.validation = reversals(7).training, reversals(later).training, reversals(validation).training

    def training(self, indices, seeds):
        return (self.read if indices.max() < 16 else self.later)(indices, seeds)


def changing(validation=7, later=7):
    return Changing(validation, later)
"""


def make_job(layout: dict[str, Any], model: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A small job whose encoder reads seven tokens of a sample and whose decoder writes five."""
    return {
        "model": model,
        "data": {"source": "texts:reversals", "options": {"length": 7, "written": 5}},
        "layout": layout,
        "optimizer": {"lr": 1e-2, "clip_norm": CLIP_NORM},
        "schedule": {"name": "constant"},
        "precision": "fp64",
        "steps": 4,
        "global_batch": 16,
        "seed": 7,
        "eval": {"every": 2, "batches": 2},
        "checkpoint": {"final": False},
        "probe": {"every": None},
        **more,
    }


def job(layout: dict[str, Any], layers: int = 4, **more: Any) -> dict[str, Any]:
    """The module of examples/t5.yaml: `layers` blocks of the encoder, and as many of the decoder."""
    model = {
        "import": "models:encoder_decoder",
        "code": str(LANGUAGE),
        "args": {"dim": 8, "layers": layers, "heads": 2},
    }
    return make_job(layout, model, **more)


def staged(*blocks: int, **more: Any) -> dict[str, Any]:
    return {"pipeline": {"stages": len(blocks), "blocks": blocks}, **more}


LAYOUTS: dict[str, dict[str, Any]] = {
    "encoder-and-decoder": staged(4, 4),
    "inside-the-decoder": staged(6, 2),
    "inside-the-encoder": staged(1, 7, schedule="gpipe"),
    "4": staged(1, 3, 2, 2),
    "4-head-alone": staged(3, 3, 2, 0),
    "4-gpipe": {"pipeline": 4, "schedule": "gpipe"},
    "2-data2": staged(3, 5, data=2),
    "2-data2-zero1": staged(5, 3, data=2, zero=1),
    "4-data2-zero1": {"pipeline": 4, "data": 2, "zero": 1, "micro_batch": 2},
    "2-data2-zero2": {"pipeline": 2, "data": 2, "zero": 2},
    "2-data2-zero3": staged(3, 5, data=2, zero=3),
    "2-interleaved": {"pipeline": 2, "schedule": "interleaved"},
    "4-interleaved": {"pipeline": 4, "schedule": "interleaved"},
    "2-interleaved-zero1": {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 1},
    "2-interleaved-zero3": {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 3},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_one_process(layout: dict[str, Any], root: Path, one_process: Make) -> None:
    """Losses, validation and parameters, with gradients clipped."""
    spec = job(layout)
    found, expected = train(spec, root), one_process(spec)
    assert_equal(found, expected, 1e-10)
    assert min(expected["norms"]) > CLIP_NORM
    assert len(evaluations(found)) == 2


def test_one_block_of_each_over_two_ranks(root: Path, one_process: Make) -> None:
    """The smallest cut: a whole encoder, then a whole decoder."""
    spec = job({"pipeline": 2}, layers=1, recompute="full")
    assert_equal(train(spec, root), one_process(spec), 1e-10)


def test_checkpoints_go_from_one_process_to_pipelines_and_back(root: Path, one_process: Make) -> None:
    whole = one_process(job({}, steps=6))
    layouts = ({}, staged(1, 3, 2, 2), staged(5, 3, data=2, zero=1), {"data": 2, "zero": 3}, staged(2, 6), {})
    resume = None
    for number, layout in enumerate(layouts):
        spec = job(layout, steps=6, checkpoint={"every": number + 1, "keep": 9, "final": False})
        found = train(spec, root, f"cut-{number}", resume=resume)
        np.testing.assert_allclose(found["losses"], whole["losses"][number:], rtol=1e-10)
        for name, value in whole["parameters"].items():
            np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)
        resume = root / "checkpoints" / f"cut-{number}" / f"step-{number + 1:08d}"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`masked(layout, …)`: a job over a module whose stages pass on numbers and a mask."""
    folder = tmp_path_factory.mktemp("masked")
    (folder / "masked.py").write_text(MODULE)
    (folder / "texts.py").write_text((LANGUAGE / "texts.py").read_text())
    (folder / "changing.py").write_text(SOURCE)

    def spec(layout: dict[str, Any], dropout: float = 0.0, **more: Any) -> dict[str, Any]:
        model = {"import": "masked:masked", "code": str(folder), "args": {"dropout": dropout}}
        return make_job(layout, model, **more)

    return spec


@pytest.mark.parametrize(
    "layout",
    [{"pipeline": 2}, {"pipeline": 4, "schedule": "gpipe"}, {"pipeline": 2, "schedule": "interleaved", "data": 2}],
    ids=str,
)
def test_any_module_with_fields_equals_one_process(layout: Any, masked: Make, root: Path, one_process: Make) -> None:
    """Its stages pass on a mask too, and all use one scalar."""
    spec = masked(layout)
    found, expected = train(spec, root), one_process(spec)
    assert_equal(found, expected, 1e-10)
    assert logged(found) == pytest.approx(logged(expected), rel=1e-10)


def logged(run: dict[str, Any]) -> list[float]:
    return [data["logged"]["size"] for kind, data in run["events"] if kind == "step"]


def test_dropout_draws_the_same_after_a_resume(masked: Make, root: Path) -> None:
    """The pass that finds the shapes of stages draws nothing that a step would draw."""
    spec = masked({"pipeline": 2}, dropout=0.3, steps=3, checkpoint={"every": 2, "final": False})
    whole = train(spec, root, "dropout")
    resumed = train(spec, root, "dropout")
    assert resumed["losses"] == whole["losses"][2:] and len(resumed["losses"]) == 1


@pytest.mark.parametrize("length", [3, 14])
def test_a_validation_split_may_have_other_shapes_than_the_training_split(
    length: int, masked: Make, root: Path, one_process: Make
) -> None:
    data = {"source": "changing:changing", "options": {"validation": length}}
    spec = masked({"pipeline": 2, "micro_batch": 4}, data=data)
    found, expected = train(spec, root), one_process(spec)
    assert_equal(found, expected, 1e-10)
    np.testing.assert_allclose(evaluations(found), evaluations(expected), rtol=1e-10)


def test_a_step_of_other_shapes_than_before_is_refused_by_the_stage_that_passes_them_on(
    masked: Make, root: Path
) -> None:
    data = {"source": "changing:changing", "options": {"later": 9}}
    before, now = r"float64 \[7, 4, 6\], bool \[4, 7\]", r"float64 \[9, 4, 6\], bool \[4, 9\]"
    with pytest.raises(RuntimeError, match=rf"data\.source: stage 0 passes on {now}, and passed on {before} before"):
        train(masked({"pipeline": 2, "micro_batch": 4}, data=data), root)
