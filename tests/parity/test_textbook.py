"""Our loop computes what a textbook's loop computes (`harness/textbook.py`): every loss, norm, rate, validation and last parameter.

All begin from the weights that transformers wrote, and parameters are compared by the names that transformers reads in our export.
The bound is 1e-12. An oracle with one wrong line is 1e-3 or more away, so that no such line of ours can pass.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.hf_models import save_hf_model
from harness.ranks import train
from harness.textbook import Record, Textbook
from harness.textbook_delayed import Delayed, NotDelayed, Stashed, Synchronised, TwiceDelayed
from harness.textbook_packed import (
    AttendsAcross,
    CrossesEnds,
    MeansOfRows,
    PackedDelayed,
    PackedNotDelayed,
    PackedStashed,
    PackedTextbook,
    save_records,
)
from harness.textbook_quantised import KeepsWeights, OtherBlocks, Quantised, RoundsWholeParameters, SumsAtOnce

os.environ["HF_HUB_OFFLINE"] = "1"

BOUND = 1e-12
SHARP = 1e-3

COMMON: dict[str, Any] = {
    "optimizer": {"lr": 5e-3, "beta1": 0.8, "beta2": 0.97, "eps": 1e-7, "weight_decay": 0.2, "clip_norm": 1.9},
    "schedule": {"name": "cosine", "warmup": 2, "min_ratio": 0.1},
    "loss": {"label_smoothing": 0.0, "z_loss": 0.0},
    "steps": 6,
    "global_batch": 8,
    "precision": "fp64",
    "seed": 11,
    "eval": {"every": 3, "batches": 2},
    "checkpoint": {"final": True},
}
TERMS = {"label_smoothing": 0.1, "z_loss": 0.01}
#: Model, layout and what the spec says otherwise. Between them: every family, axis and kind of schedule.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "accumulates": ("llama", {"data": 2, "zero": 1, "micro_batch": 1}, {}),
    "serves": ("llama", {"data": 2, "parameter_server": {"servers": 2}, "micro_batch": 2}, {"loss": TERMS}),
    "never-clips": (
        "gpt2",
        {"pipeline": 2, "schedule": "1f1b"},
        {"optimizer": {**COMMON["optimizer"], "clip_norm": None}, "schedule": {"name": "linear", "warmup": 0, "min_ratio": 0.0}},
    ),
    "splits-by-times": ("gpt2", {"pipeline": {"stages": 2, "split": "profile"}, "data": 2, "zero": 1}, {}),
    "smooths-cut-logits": ("qwen3", {"tensor": 2, "data": 2, "zero": 3}, {"loss": TERMS}),
    "cuts-sequences": (
        "llama",
        {"context": 2},
        {"loss": TERMS, "schedule": {"name": "constant", "warmup": 3, "min_ratio": 0.1}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small are slower with several."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def spec_of(root: Path) -> Callable[..., dict[str, Any]]:
    """`spec_of(model, layout, **changes)`: every number written out; two files, so that windows go across a document's end."""
    rng = np.random.default_rng(2)
    for name in ("first", "second"):
        letters = rng.choice(np.frombuffer(b"etaoin shrdlu\n", dtype=np.uint8), 2_900)
        (root / f"{name}.txt").write_bytes(letters.tobytes())
    files = [str(root / f"{name}.txt") for name in ("first", "second")]
    data = {"source": "text", "files": files, "seq_len": 32, "validation": 0.3}

    def make(model: str, layout: dict[str, Any], **changes: Any) -> dict[str, Any]:
        return {**COMMON, "model": {"from": str(save_hf_model(root, model))}, "data": data, "layout": layout, **changes}

    return make


def ours(spec: dict[str, Any], root: Path, name: str, resume: str | None = None) -> Record:
    """Our loop's record of a spec."""
    return recorded(train(spec, root, name, resume=resume))


def recorded(found: dict[str, Any]) -> Record:
    by_kind = {kind: [data for its, data in found["events"] if its == kind] for kind, _ in found["events"]}
    return Record(
        rates=[data["lr"] for data in by_kind["step"]],
        losses=[data["loss"] for data in by_kind["step"]],
        norms=[data.get("grad_norm") for data in by_kind["step"]],
        validations={data["step"]: data["loss"] for data in by_kind["eval"]},
        parameters=_exported(by_kind["checkpoint"][-1]["path"]),
    )


def _exported(checkpoint: str) -> dict[str, Any]:
    from safetensors.torch import load_file

    from shardyard.workers.huggingface.export import export
    from shardyard.workers.storage.open_folder import folder_at

    out = Path(checkpoint).parent / "exported"
    export(folder_at(checkpoint), folder_at(str(out)), dtype="fp64")
    return load_file(out / "model.safetensors")


def distance(found: Record, expected: Record) -> float:
    """The largest relative difference; of a parameter by its own largest value."""
    pairs = [
        *((getattr(found, name), getattr(expected, name)) for name in ("rates", "losses", "norms")),
        *((found.validations[step], loss) for step, loss in expected.validations.items()),
        *((found.parameters[name].numpy(), expected.parameters[name].numpy()) for name in found.parameters),
    ]
    assert len(found.losses) == len(expected.losses) and found.validations.keys() == expected.validations.keys()
    return max(float(np.abs(np.subtract(a, b)).max() / np.abs(b).max()) for a, b in pairs)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_textbook(name: str, root: Path, spec_of: Any) -> None:
    model, layout, changes = CASES[name]
    spec = spec_of(model, layout, **changes)
    expected = Textbook(spec).run()
    limit = spec["optimizer"]["clip_norm"]
    if limit is not None:
        assert min(expected.norms) < limit < max(expected.norms), expected.norms
    assert distance(ours(spec, root, f"textbook-{name}"), expected) < BOUND


def test_goes_on_as_the_textbook_on_another_layout_with_another_global_batch(root: Path, spec_of: Any) -> None:
    saves = {"checkpoint": {"every": 3, "final": False}}
    first = train(spec_of("gpt2", {"data": 2, "zero": 2}, **saves), root, "textbook-first")
    path = next(data["path"] for kind, data in first["events"] if kind == "checkpoint" and data["step"] == 3)
    spec = spec_of("gpt2", {"tensor": 2}, global_batch=12, resume_from=path)
    found = ours(spec, root, "textbook-second", resume=path)
    expected = Textbook(spec, batches=[8, 8, 8, 12, 12, 12]).run()
    assert distance(found, expected.after(3)) < BOUND


SGD = {**COMMON["optimizer"], "name": "sgd", "lr": 0.3, "beta1": 0.5}
NEVER_CLIPS = {**COMMON["optimizer"], "clip_norm": None}
#: Model, layout with 2BW's pipeline, and what the spec says otherwise.
DELAYED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "adamw-two-stages": ("llama", {"pipeline": 2}, {}),
    "sgd-two-stages": ("gpt2", {"pipeline": 2, "micro_batch": 1}, {"optimizer": SGD}),
    "adamw-four-stages": ("llama", {"pipeline": 4}, {"loss": TERMS}),
    "sgd-four-stages-tied": ("gpt2", {"pipeline": 4}, {"optimizer": SGD}),
    "adamw-two-stages-two-replicas": ("qwen3", {"pipeline": 2, "data": 2}, {"recompute": "full"}),
    # A micro-batch for each stage: ranks run passes in turns, and end a step together.
    "adamw-four-micro-batches": ("llama", {"pipeline": 4, "micro_batch": 2}, {}),
    # Without clipping they end it at different times.
    "adamw-four-stages-apart": ("llama", {"pipeline": 4, "micro_batch": 2}, {"optimizer": NEVER_CLIPS, "loss": TERMS}),
    "sgd-two-stages-tied-apart": ("gpt2", {"pipeline": 2, "micro_batch": 1}, {"optimizer": {**SGD, "clip_norm": None}}),
    "adamw-two-stages-two-replicas-apart": ("qwen3", {"pipeline": 2, "data": 2}, {"optimizer": NEVER_CLIPS}),
}


@pytest.mark.parametrize("name", DELAYED)
def test_2bw_equals_the_textbook_with_a_delay_of_one_step(name: str, root: Path, spec_of: Any) -> None:
    model, layout, changes = DELAYED[name]
    spec = spec_of(model, {**layout, "schedule": "2bw"}, **changes)
    found = ours(spec, root, f"delayed-{name}")
    assert distance(found, Delayed(spec).run()) < BOUND
    others = [distance(found, other(spec).run()) for other in (NotDelayed, TwiceDelayed)]
    assert min(others) > SHARP, others


#: Model, layout with PipeDream's pipeline, and what the spec says otherwise.
STASHED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "adamw-two-stages": ("llama", {"pipeline": 2}, {}),
    "sgd-two-stages-tied": ("gpt2", {"pipeline": 2}, {"optimizer": SGD}),
    "adamw-four-stages": ("llama", {"pipeline": 4}, {"loss": TERMS}),
    "sgd-four-stages": ("qwen3", {"pipeline": 4}, {"optimizer": SGD}),
    "adamw-two-stages-two-replicas": ("qwen3", {"pipeline": 2, "data": 2}, {"recompute": "full"}),
    # Without clipping its ranks end a step at different times.
    "adamw-two-stages-apart": ("llama", {"pipeline": 2}, {"optimizer": NEVER_CLIPS}),
    "sgd-two-stages-tied-apart": ("gpt2", {"pipeline": 2}, {"optimizer": {**SGD, "clip_norm": None}}),
    "adamw-four-stages-apart": ("llama", {"pipeline": 4}, {"optimizer": NEVER_CLIPS, "loss": TERMS}),
    "adamw-two-stages-two-replicas-apart": ("qwen3", {"pipeline": 2, "data": 2}, {"optimizer": NEVER_CLIPS}),
}


@pytest.mark.parametrize("name", STASHED)
def test_pipedream_equals_the_textbook_with_a_delay_for_each_stage(name: str, root: Path, spec_of: Any) -> None:
    model, layout, changes = STASHED[name]
    spec = spec_of(model, {**layout, "schedule": "pipedream"}, **changes)
    run = train(spec, root, f"stashed-{name}")
    (blocks,) = [data["stage_blocks"] for kind, data in run["events"] if kind == "plan"]
    found = recorded(run)
    assert distance(found, Stashed(spec, blocks).run()) < BOUND
    others = [distance(found, other(spec).run()) for other in (NotDelayed, Delayed)]
    assert min(others) > SHARP, others


#: Model, layout with PipeDream's pipeline and vertical sync, and what the spec says otherwise.
SYNCHRONISED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "adamw-two-stages": ("llama", {"pipeline": 2}, {}),
    "sgd-three-stages": ("qwen3", {"pipeline": 3}, {"optimizer": SGD}),
    "adamw-four-stages": ("llama", {"pipeline": 4}, {"loss": TERMS}),
    "adamw-four-stages-two-replicas": ("llama", {"pipeline": 4, "data": 2}, {}),
    "adamw-two-stages-tied-two-replicas": ("gpt2", {"pipeline": 2, "data": 2}, {"recompute": "full"}),
    "adamw-four-stages-apart": ("llama", {"pipeline": 4}, {"optimizer": NEVER_CLIPS, "loss": TERMS}),
}


@pytest.mark.parametrize("name", SYNCHRONISED)
def test_vertical_sync_equals_the_textbook_with_one_delay(name: str, root: Path, spec_of: Any) -> None:
    model, layout, changes = SYNCHRONISED[name]
    spec = spec_of(model, {**layout, "schedule": "pipedream", "vertical_sync": True}, **changes)
    run = train(spec, root, f"synchronised-{name}")
    (blocks,) = [data["stage_blocks"] for kind, data in run["events"] if kind == "plan"]
    found = recorded(run)
    stages = layout["pipeline"]
    assert distance(found, Synchronised(spec, stages).run()) < BOUND
    others = [distance(found, Synchronised(spec, other).run()) for other in (stages - 1, stages + 1)]
    others.append(distance(found, Stashed(spec, blocks).run()))
    assert min(others) > SHARP, others


#: Model, layout with packed documents, and what the spec says otherwise.
PACKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "accumulates": ("llama", {"data": 2, "zero": 1, "micro_batch": 1}, {}),
    "stages": ("gpt2", {"pipeline": 2, "schedule": "1f1b", "micro_batch": 2}, {"loss": TERMS}),
    "stages-by-times": ("gpt2", {"pipeline": {"stages": 2, "split": "profile"}, "context": 2}, {}),
    "smooths-cut-logits": ("qwen3", {"tensor": 2, "data": 2, "zero": 3}, {"loss": TERMS}),
    "cuts-sequences": ("llama", {"context": 2}, {"loss": TERMS}),
    "cuts-sequences-twice": ("gpt2", {"context": 4, "ulysses": 2, "data": 2, "zero": 2}, {}),
}


@pytest.fixture(scope="module")
def packed_spec_of(root: Path, spec_of: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """`spec_of` with packed documents."""
    data = {**save_records(root), "documents": "packed", "seq_len": 32, "validation": 0.3}
    return lambda model, layout, **changes: spec_of(model, layout, data=data, **changes)


@pytest.mark.parametrize("name", PACKED)
def test_packed_documents_equal_documents_alone(name: str, root: Path, packed_spec_of: Any) -> None:
    model, layout, changes = PACKED[name]
    spec = packed_spec_of(model, layout, **changes)
    assert distance(ours(spec, root, f"packed-{name}"), PackedTextbook(spec).run()) < BOUND


def test_2bw_with_packed_documents_equals_the_textbook(root: Path, packed_spec_of: Any) -> None:
    spec = packed_spec_of("gpt2", {"pipeline": 2, "data": 2, "schedule": "2bw", "micro_batch": 1}, loss=TERMS)
    found = ours(spec, root, "packed-2bw")
    assert distance(found, PackedDelayed(spec).run()) < BOUND
    assert distance(found, PackedNotDelayed(spec).run()) > SHARP


def test_pipedream_with_packed_documents_equals_the_textbook(root: Path, packed_spec_of: Any) -> None:
    spec = packed_spec_of("llama", {"pipeline": 3, "schedule": "pipedream"})
    run = train(spec, root, "packed-pipedream")
    (blocks,) = [data["stage_blocks"] for kind, data in run["events"] if kind == "plan"]
    found = recorded(run)
    assert distance(found, PackedStashed(spec, blocks).run()) < BOUND
    assert distance(found, PackedTextbook(spec).run()) > SHARP


def test_documents_alone_with_one_wrong_line_are_far_away(packed_spec_of: Any) -> None:
    spec = packed_spec_of("llama", {}, loss=TERMS)
    expected = PackedTextbook(spec).run()
    wrong = (CrossesEnds, AttendsAcross, MeansOfRows)
    found = {one.__name__: distance(one(spec).run(), expected) for one in wrong}
    assert min(found.values()) > SHARP, found


ROUNDED = {"weights": "int8", "gradients": "int8", "block": 32}
SMALLER = {"weights": "int8", "secondary": 2, "gradients": "int4", "block": 32}
#: Model, layout with ZeRO++, and what the spec says otherwise.
QUANTISED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "all-three": ("llama", {"data": 4, "zero": 3, "micro_batch": 2, "zero_plus_plus": SMALLER}, {}),
    "accumulates": ("llama", {"data": 4, "zero": 3, "micro_batch": 1, "zero_plus_plus": SMALLER}, {"loss": TERMS}),
    "two-nodes-of-four": ("llama", {"data": 8, "zero": 3, "micro_batch": 1, "zero_plus_plus": {**SMALLER, "secondary": 4}}, {}),
    "weights": ("qwen3", {"data": 2, "zero": 3, "micro_batch": 2, "zero_plus_plus": {"weights": "int8", "block": 64}}, {}),
    "recomputes": ("llama", {"data": 4, "zero": 3, "micro_batch": 2, "zero_plus_plus": SMALLER}, {"recompute": "full"}),
    "groups": ("llama", {"data": 4, "zero": 3, "shard": 2, "micro_batch": 1, "zero_plus_plus": ROUNDED}, {}),
    "uneven": ("llama", {"data": 3, "zero": 3, "micro_batch": 2, "zero_plus_plus": ROUNDED}, {"global_batch": 12}),
    "tensor": ("qwen3", {"tensor": 2, "data": 2, "zero": 3, "micro_batch": 2, "zero_plus_plus": ROUNDED}, {}),
    "stages": ("llama", {"pipeline": 2, "data": 2, "zero": 3, "micro_batch": 1, "zero_plus_plus": ROUNDED}, {}),
    "zero1": ("llama", {"data": 2, "zero": 1, "micro_batch": 2, "zero_plus_plus": {"gradients": "int4", "block": 32}}, {}),
    "zero2": (
        "qwen3",
        {"data": 4, "zero": 2, "micro_batch": 1, "zero_plus_plus": {"gradients": "int8", "node": 2, "block": 64}},
        {"overlap": {"bucket_mb": 0.05, "prefetch": 1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_zero_plus_plus_equals_the_textbook_that_rounds_the_same_blocks(name: str, root: Path, spec_of: Any) -> None:
    model, layout, changes = QUANTISED[name]
    spec = spec_of(model, layout, **changes)
    assert distance(ours(spec, root, f"quantised-{name}"), Quantised(spec).run()) < BOUND


def test_rounding_with_one_wrong_line_is_far_away(spec_of: Any) -> None:
    model, layout, changes = QUANTISED["accumulates"]
    spec = spec_of(model, layout, **changes)
    expected = Quantised(spec).run()
    wrong = (Textbook, KeepsWeights, SumsAtOnce, OtherBlocks, RoundsWholeParameters)
    found = {one.__name__: distance(one(spec).run(), expected) for one in wrong}
    assert min(found.values()) > SHARP, found


class NeverClips(Textbook):
    def clip(self) -> Any:
        self.recipe = {**self.recipe, "clip_norm": None}
        return super().clip()


class ClipsByTheSquare(Textbook):
    def clip(self) -> Any:
        norm, limit = super().clip(), self.recipe["clip_norm"]
        for parameter in self.model.parameters():
            parameter.grad.mul_(min(1.0, limit / norm.item() ** 2) / min(1.0, limit / norm.item()))
        return norm


class ClipsEachParameter(Textbook):
    def clip(self) -> Any:
        norm = super().clip()
        for parameter in self.model.parameters():
            parameter.grad.mul_(min(1.0, self.recipe["clip_norm"] / 5 / parameter.grad.norm().item()))
        return norm


class OtherBeta(Textbook):
    def adamw(self) -> Any:
        return {**super().adamw(), "betas": (self.recipe["beta1"], 0.999)}


class DecaysAll(Textbook):
    def groups(self) -> Any:
        return [{"params": list(self.model.parameters()), "weight_decay": self.recipe["weight_decay"]}]


class KeepsEmbeddings(Textbook):
    def groups(self) -> Any:
        matrices, others = super().groups()
        ends = {id(self.model.get_input_embeddings().weight), id(self.model.get_output_embeddings().weight)}
        kept = [parameter for parameter in matrices["params"] if id(parameter) in ends]
        matrices["params"] = [parameter for parameter in matrices["params"] if id(parameter) not in ends]
        return [matrices, {**others, "params": [*others["params"], *kept]}]


class WarmsUpFromNothing(Textbook):
    def learning_rate(self, step: int) -> float:
        return super().learning_rate(step - 1)


class EndsAStepLate(Textbook):
    def learning_rate(self, step: int) -> float:
        self.end = self.spec["steps"] + 1
        return super().learning_rate(step)


class NoTerms(Textbook):
    def loss(self, rows: Any, **_: float) -> Any:
        return super().loss(rows)


class SmoothsOverOthers(Textbook):
    def loss(self, rows: Any, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Any:
        return super().loss(rows, label_smoothing * 256 / 255, z_loss)


class ReadsFromTheNextSample(Textbook):
    def train(self, step: int) -> None:
        self.first_samples[step - 1] += 1
        super().train(step)


WRONG = [NeverClips, ClipsByTheSquare, ClipsEachParameter, OtherBeta, DecaysAll, KeepsEmbeddings, WarmsUpFromNothing]
WRONG += [EndsAStepLate, NoTerms, SmoothsOverOthers, ReadsFromTheNextSample]


def test_a_textbook_with_one_wrong_line_is_far_away(spec_of: Any) -> None:
    spec = spec_of("llama", {}, loss=TERMS)
    expected = Textbook(spec).run()
    found = {wrong.__name__: distance(wrong(spec).run(), expected) for wrong in WRONG}
    assert min(found.values()) > SHARP, found
