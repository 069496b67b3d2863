"""A data source of the user's own: what it gives reaches the module, in the order of a plain loop, on any layout and after any restart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import spawn, train

Make = Callable[..., Any]

MODULE = '''
import numpy as np
import torch
from torch import nn


class Points:
    """Three tensors of different dtypes per sample, each a function of the index; `drawn` of the seed."""

    def __init__(self, samples, held_out):
        self.samples, self.validation_samples = samples, held_out

    def training(self, indices, seeds):
        points = np.stack([np.cos(indices * k) for k in (1.0, 0.7, 0.3)], 1)
        drawn = np.array([np.random.default_rng(seed).standard_normal() for seed in seeds])
        return {
            "points": torch.from_numpy(points.astype(np.float32)),
            "labels": torch.from_numpy(indices % 5),
            "bytes": torch.from_numpy((indices % 256).astype(np.uint8)),
            "drawn": torch.from_numpy(drawn),
        }

    def validation(self, indices, seeds):
        return self.training(indices + 1000, seeds)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 5))

    def forward(self, fields):
        assert fields["bytes"].dtype == torch.uint8 and fields["points"].dtype == self.layers[0].weight.dtype
        self.log("seen", fields["labels"].double().mean() + 7 * fields["bytes"].double().mean())
        losses = nn.functional.cross_entropy(self.layers(fields["points"]), fields["labels"], reduction="none")
        return losses + 0.1 * (self.layers(fields["points"]).sum(1) - fields["drawn"]) ** 2 * (fields["bytes"] > 3)


def model():
    return Classifier()


class HalfFrozen(Classifier):
    """A frozen layer before the trained ones, as of a base model."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(3, 3).requires_grad_(False)

    def forward(self, fields):
        return super().forward({**fields, "points": self.base(fields["points"])})


def frozen():
    return HalfFrozen()


def thawed():
    return HalfFrozen().requires_grad_(True)


def source(samples=None, held_out=0):
    return Points(samples, held_out)


class Raises(Points):
    def training(self, indices, seeds):
        if 20 in indices:
            raise OSError("the disk of shard 3 is gone")
        return super().training(indices, seeds)


class Flat(nn.Linear):
    def forward(self, fields):
        return super().forward(fields["points"]).mean()


def raises():
    return Raises(None, 0)


def changes():
    held = Points(None, 0)
    held.training = lambda indices, seeds: {"points": torch.rand(len(indices), 3)}
    return held


def short():
    held = Points(None, 0)
    held.training = lambda indices, seeds: {"points": torch.zeros(1 + len(indices), 3)}
    return held


def flat():
    return Flat(3, 5)


def number():
    return 3
'''


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`own(layout, …)`: a small job over the source."""
    folder = tmp_path_factory.mktemp("own_source")
    (folder / "points.py").write_text(MODULE)

    def spec(layout: dict[str, Any], source: str = "source", model: str = "model", **more: Any) -> dict[str, Any]:
        options = more.pop("options", {})
        small = {
            "model": {"import": f"points:{model}", "code": str(folder)},
            "data": {"source": f"points:{source}", "options": options},
            "layout": layout,
            "optimizer": {"lr": 1e-2, "weight_decay": 0.0},
            "schedule": {"name": "constant"},
            "precision": "fp64",
            "steps": 6,
            "global_batch": 8,
            "seed": 7,
            "eval": {"every": 2, "batches": 2},
            "checkpoint": {"final": False},
            "probe": {"every": None},
        }
        return {**small, **more}

    return spec


def textbook(rank: int, world: int, port: int, module: str, steps: int, batch: int) -> list[float]:
    """The losses of a plain loop: the samples in their order, torch's own AdamW and clipping. Uses nothing of Shardyard's training."""
    import types

    import torch
    from torch import nn

    code = types.ModuleType("points")
    nn.Module.log = lambda self, name, value: None  # type: ignore[attr-defined]
    exec(module, code.__dict__)
    torch.manual_seed(7)
    model, source = code.model().double(), code.source()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, (0.9, 0.95), 1e-8, 0.0)
    losses = []
    for step in range(steps):
        fields = source.training(np.arange(step * batch, (step + 1) * batch), np.arange(batch))
        fields["points"] = fields["points"].double()
        fields["drawn"] = torch.zeros(batch).double()
        loss = model(fields).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


LAYOUTS: list[dict[str, Any]] = [
    {"data": 2, "zero": 2, "micro_batch": 2},
    {"data": 2},
    {"data": 4, "zero": 1, "micro_batch": 1},
    {"data": 2, "zero": 3},
    {"data": 4, "zero": 3, "shard": 2},
]


def test_equals_a_textbook_loop(own: Make, root: Path) -> None:
    (expected,) = spawn(textbook, 1, MODULE.replace('- fields["drawn"]', ""), 6, 8)
    spec = own({"data": 2, "zero": 2}, options={})
    Path(spec["model"]["code"], "undrawn.py").write_text(MODULE.replace('- fields["drawn"]', ""))
    spec["model"]["import"], spec["data"]["source"] = "undrawn:model", "undrawn:source"
    found = train(spec, root, "textbook")
    np.testing.assert_allclose(found["losses"], expected, rtol=1e-12)
    assert not [kind for kind, _ in found["events"] if kind == "eval"], "there is no validation split"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_equals_one_process(layout: Any, own: Make, root: Path, one_process: Make) -> None:
    """Of a finite source: more than one epoch, shuffled, with validation."""
    spec = own(layout, options={"samples": 20, "held_out": 10})
    found, expected = train(spec, root), one_process(spec)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-11)
    assert seen(found) == pytest.approx(seen(expected), rel=1e-13)
    assert evals(found) == pytest.approx(evals(expected), rel=1e-11) and len(evals(found)) == 3
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-11, err_msg=name)


def seen(run: dict[str, Any]) -> list[float]:
    """The mean label and byte of the samples of each step: they say which ones were read."""
    return [data["logged"]["seen"] for kind, data in run["events"] if kind == "step"]


def evals(run: dict[str, Any]) -> list[float]:
    return [data["loss"] for kind, data in run["events"] if kind == "eval"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_resume_is_equal_to_the_bit_and_goes_on_in_another_layout(ranks: int, own: Make, root: Path) -> None:
    options = {"samples": 20, "held_out": 0}
    checkpoint = {"every": 4, "final": False}
    whole = train(own({"data": ranks}, options=options, checkpoint=checkpoint), root, f"whole{ranks}")
    resumed = train(own({"data": ranks}, options=options, checkpoint=checkpoint), root, f"whole{ranks}")
    assert resumed["losses"] == whole["losses"][4:] and seen(resumed) == seen(whole)[4:]
    saved = str(root / "checkpoints" / f"whole{ranks}" / "step-00000004")
    other = own({"data": 4, "zero": 3, "micro_batch": 1}, options=options, resume_from=saved)
    moved = train(other, root, f"moved{ranks}", resume=saved)
    assert seen(moved) == pytest.approx(seen(whole)[4:], rel=1e-13)
    np.testing.assert_allclose(moved["losses"], whole["losses"][4:], rtol=1e-11)
    with pytest.raises(RuntimeError, match=r"another set of samples.*resume_data: restart"):
        train(own({}, options={"samples": 21}, resume_from=saved), root, "refused", resume=saved)


@pytest.mark.parametrize("zero", [2, 3])
def test_frozen_parameters_are_made_again_by_the_factory(zero: int, own: Make, root: Path, one_process: Make) -> None:
    """They are in no checkpoint and in no param shard."""
    spec = own({"data": 2, "zero": zero}, model="frozen", checkpoint={"every": 4, "final": False})
    whole = train(spec, root, f"frozen{zero}")
    assert not [name for name in whole["parameters"] if "base" in name]
    np.testing.assert_allclose(
        whole["losses"], one_process({**spec, "checkpoint": {"final": False}})["losses"], rtol=1e-11
    )
    assert train(spec, root, f"frozen{zero}")["losses"] == whole["losses"][4:]


@pytest.mark.parametrize("layout", [{"data": 2}, {"data": 2, "zero": 3}], ids=str)
def test_a_weight_that_the_checkpoint_has_trained_is_not_frozen_with_the_value_of_the_factory(
    layout: Any, own: Make, root: Path
) -> None:
    name = f"thawed{layout.get('zero', 0)}"
    train(own({}, model="thawed", steps=4, checkpoint={"every": 4, "final": False}), root, name)
    saved = str(root / "checkpoints" / name / "step-00000004")
    said = r"base\.bias and 1 more, frozen here, was trained in the checkpoint: its value would be lost"
    with pytest.raises(RuntimeError, match=said):
        train(own(layout, model="frozen", resume_from=saved), root, f"{name}-frozen", resume=saved)


@pytest.mark.parametrize(
    ("source", "model", "message"),
    [
        ("raises", "model", r"points:raises, training samples 16 to 23: OSError: the disk of shard 3 is gone"),
        ("changes", "model", r"points:changes: 'points' of sample 0 differs when it is read again"),
        ("short", "model", r"points:short, training samples 0 to 1: 'points' is \(3, 3\) on cpu, not 2 rows"),
        ("number", "model", r"points:number returned a int without samples"),
        ("missing", "model", r"data.source.*cannot import points:missing"),
        ("source", "flat", r"the model returned \(\); it must return one loss per sample, here \(8,\)"),
    ],
)
def test_what_cannot_be_used_is_named(source: str, model: str, message: str, own: Make, root: Path) -> None:
    with pytest.raises(RuntimeError, match=message):
        train(own({}, source=source, model=model), root, f"fails-{source}-{model}")
