"""Published models: read into any layout they give transformers' logits, and what is exported transformers reads back."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.hf_models import MODELS, save_hf_model
from harness.ranks import group, spawn, train, train_rank

from .test_layouts import assert_equal

os.environ["HF_HUB_OFFLINE"] = "1"

Make = Callable[..., Any]

#: Transformers computes RMSNorm and rotary angles in float32, whatever the model's dtype; only GPT-2 is float64 throughout.
EXACT = {name: 1e-10 if name == "gpt2" else 1e-5 for name in MODELS}
TOKENS = np.random.default_rng(5).integers(0, 256, (4, 32))


@pytest.fixture(scope="module")
def published(root: Path) -> Callable[[str], Path]:
    """`published(name, dtype)`: the folder of that model."""
    return lambda name, dtype="float64": save_hf_model(root, name, dtype)


def theirs(folder: Path, dtype: str = "float64") -> Any:
    """Transformers' logits of `TOKENS` [4, 32, vocab] for the model in `folder`."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    with torch.no_grad():
        return model(torch.from_numpy(TOKENS)).logits.numpy()


def ours(spec: dict[str, Any], root: Path) -> Any:
    """Our logits of `TOKENS`, put together from the ranks of the spec's layout."""
    from shardyard.workers.spec import Run, TrainSpec

    run = Run(job="logits", train=TrainSpec.model_validate(spec), checkpoints=root / "none", cache=root / "cache")
    found = [part for part in spawn(_logits, run.train.layout.world_size, run.model_dump_json()) if part is not None]
    return np.concatenate(found, axis=-1) if found[0].shape[-1] < 256 else found[0]


def _logits(rank: int, world: int, port: int, orders: str) -> Any:
    import torch

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.build import build

    run = Run.model_validate_json(orders)
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    last = built.parallel.parts[-1]
    outputs: list[Any] = []
    last.register_forward_hook(lambda _module, _inputs, output: outputs.append(_own(output.detach())))
    tokens = torch.from_numpy(TOKENS)
    built.parallel.runner.validate(tokens, tokens)
    return torch.cat(outputs).numpy() if last.head is not None else None


def _own(logits: Any) -> Any:
    """This rank's columns, where the vocabulary is cut over the tensor axis."""
    from torch.distributed.tensor import DTensor

    return logits.to_local() if isinstance(logits, DTensor) else logits


def spec_of(make_spec: Make, folder: Path, layout: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return make_spec(layout, model={"from": str(folder)}, global_batch=4 * layout.get("data", 1), **changes)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, root: Path, make_spec: Make, published: Make) -> None:
    for dtype, precision, bound in (("float64", "fp64", EXACT[name]), ("float32", "fp32", 1e-4)):
        folder = published(name, dtype)
        found = ours(spec_of(make_spec, folder, {}, precision=precision), root)
        assert np.abs(found).max() > 0.3
        np.testing.assert_allclose(found, theirs(folder, dtype), rtol=0, atol=bound)


LAYOUTS = [
    ("llama", {"tensor": 2}),
    ("llama", {"pipeline": 2}),
    ("llama", {"data": 2, "zero": 3}),
    ("gpt2", {"tensor": 2}),
    ("gpt2", {"data": 2, "zero": 3}),
    ("mistral", {"tensor": 2, "pipeline": 2}),
    ("qwen2", {"tensor": 2}),
    ("qwen3", {"tensor": 2}),
    ("qwen2", {"pipeline": 2}),
    ("gpt2", {"pipeline": 2, "schedule": "zbv"}),
]


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_any_layout_reads_its_own_slices(
    name: str, layout: dict[str, Any], root: Path, make_spec: Make, published: Make
) -> None:
    folder = published(name)
    found = ours(spec_of(make_spec, folder, layout), root)
    np.testing.assert_allclose(found, ours(spec_of(make_spec, folder, {}), root), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found, theirs(folder), rtol=0, atol=EXACT[name])


def saved(run: dict[str, Any]) -> Path:
    return Path([data["path"] for kind, data in run["events"] if kind == "checkpoint"][-1])


FINE_TUNES = [("llama", {"tensor": 2}), ("gpt2", {"pipeline": 2}), ("qwen2", {"data": 2, "zero": 3}), ("mistral", {})]


@pytest.mark.parametrize(("name", "layout"), FINE_TUNES)
def test_fine_tunes_and_gives_back_what_transformers_reads(
    name: str, layout: dict[str, Any], root: Path, make_spec: Make, published: Make
) -> None:
    from shardyard.workers.huggingface.export import export
    from shardyard.workers.storage.open_folder import folder_at

    spec = make_spec(layout, steps=3, checkpoint={"every": 3}, model={"from": str(published(name))})
    checkpoint = saved(train(spec, root, f"tuned-{name}"))
    out = Path(
        export(folder_at(checkpoint), folder_at(root / f"exported-{name}"), dtype="fp64", shard_bytes=30_000).path
    )
    assert (out / "model.safetensors.index.json").exists()
    again = ours(make_spec({}, model={"from": str(out)}, global_batch=4), root)
    np.testing.assert_allclose(again, theirs(out), rtol=0, atol=EXACT[name])
    assert np.abs(again - theirs(published(name))).max() > 1e-3, "three steps change the model"


TIED = [
    ("qwen2", {"pipeline": 2}),
    ("qwen2", {"pipeline": 2, "schedule": "zbv"}),
    ("qwen2", {"pipeline": 2, "data": 2, "zero": 3}),
    ("gpt2", {"pipeline": 2, "schedule": "interleaved"}),
    ("gpt2", {"pipeline": 2, "tensor": 2, "data": 2, "zero": 1}),
    ("gpt2", {"pipeline": 4, "schedule": "gpipe"}),
]


@pytest.mark.parametrize(("name", "layout"), TIED)
def test_tied_models_train_under_a_pipeline_as_on_one_process(
    name: str, layout: dict[str, Any], root: Path, make_spec: Make, published: Make, one_process: Make
) -> None:
    changes = {"model": {"from": str(published(name))}, "steps": 3}
    found = train(make_spec(layout, **changes), root)
    assert "head.weight" not in found["parameters"]
    assert_equal(found, one_process(make_spec({}, **changes)), 1e-10)


@pytest.mark.parametrize(("name", "layout"), [("llama", {"tensor": 2}), ("qwen2", {"pipeline": 2})])
def test_the_command_exports_what_two_ranks_saved(
    name: str, layout: dict[str, Any], root: Path, make_spec: Make, published: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors import safe_open

    from shardyard.api.cli.main import run

    job, out = f"saved-{name}", root / f"by-command-{name}"
    trained = train(make_spec(layout, steps=2, checkpoint={}, model={"from": str(published(name))}), root, job)
    assert run(["export", str(root / "checkpoints" / job), str(out), "--dtype", "fp64"]) == 0
    printed = capsys.readouterr().out
    assert str(saved(trained)) in printed and str(out) in printed and "fp64 in 1 file" in printed
    with safe_open(out / "model.safetensors", "np") as weights:
        for theirs_name, ours_name in (("model.embed_tokens", "embed"), ("model.norm", "norm")):
            written = weights.get_tensor(f"{theirs_name}.weight")
            np.testing.assert_array_equal(written, trained["parameters"][f"{ours_name}.weight"])
    again = ours(make_spec({}, model={"from": str(out)}, global_batch=4), root)
    np.testing.assert_allclose(again, theirs(out), rtol=0, atol=EXACT[name])
    assert run(["export", str(root / "checkpoints" / job), str(out)]) == 1
    assert "Name a new folder" in capsys.readouterr().err


def test_the_command_names_what_holds_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from shardyard.api.cli.main import run

    assert run(["export", str(tmp_path), str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "holds no complete checkpoint" in said and "shardyard checkpoints JOB" in said
    assert not (tmp_path / "out").exists()


def test_a_fine_tune_resumes_on_the_same_curve(root: Path, make_spec: Make, published: Make) -> None:
    model = {"from": str(published("llama"))}
    whole = train(make_spec({}, model=model), root, "tuned-whole")
    first = train(
        make_spec({"data": 2, "zero": 1}, model=model, checkpoint={"every": 3, "final": False}), root, "tuned-3"
    )
    resumed = train(make_spec({"tensor": 2}, model=model), root, "tuned-5", resume=saved(first))
    np.testing.assert_allclose(
        first["losses"] + resumed["losses"][-2:], whole["losses"] + whole["losses"][-2:], rtol=1e-9
    )
    assert len(resumed["losses"]) == 2


def test_our_own_model_is_exported(root: Path, make_spec: Make) -> None:
    from shardyard.workers.huggingface.export import export
    from shardyard.workers.storage.open_folder import folder_at

    run = train(make_spec({"tensor": 2}, steps=1, checkpoint={}), root, "own-llama")
    out = Path(export(folder_at(saved(run)), folder_at(root / "exported-own")).path)
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"], config["hidden_size"]) == ("llama", 256, 32)
    found = ours(make_spec({}, model={"from": str(out)}, global_batch=4, precision="fp32"), root)
    np.testing.assert_allclose(found, theirs(out, "float32"), rtol=0, atol=1e-4)
    with pytest.raises(FileExistsError):
        export(folder_at(saved(run)), folder_at(out))


def noting_what_it_hashes(rank: int, world: int, port: int, orders: str) -> Any:
    """The files of checkpoints that a rank verifies become names of files beside them."""
    from shardyard.workers.spec import Run
    from shardyard.workers.storage.local_folder import LocalFolder

    usual, beside = LocalFolder.sha256, Run.model_validate_json(orders).checkpoints

    def sha256(self: LocalFolder, name: str, *rest: Any) -> str | None:
        Path(beside, f"hashed-by-{rank}-{name}").touch()
        return usual(self, name, *rest)

    LocalFolder.sha256 = sha256  # type: ignore[method-assign]  # of this process, which is the rank's
    return train_rank(rank, world, port, orders)


def test_a_job_exports_its_own_last_checkpoint(root: Path, make_spec: Make) -> None:
    from shardyard.workers.huggingface.export import export
    from shardyard.workers.storage.open_folder import folder_at

    spec = make_spec({"data": 2, "zero": 1}, steps=20, checkpoint={"every": 10, "keep": 1, "export": True})
    killed = root / "checkpoints" / "exporting" / ".export-00000020.1.partial"  # within an export
    killed.mkdir(parents=True)
    (killed / "model.safetensors").touch()
    run = train(spec, root, "exporting", work=noting_what_it_hashes)
    assert not killed.exists()
    hashed = sorted(path.name.split("-")[:5] for path in killed.parent.glob("hashed-by-*"))
    assert hashed == [["hashed", "by", rank, "rank", f"0000{rank}"] for rank in "01"], "each rank verifies its share"
    (reported,) = [data for kind, data in run["events"] if kind == "export"]
    assert reported["path"] == str(root / "checkpoints" / "exporting" / "export-00000020")
    (summary,) = [data for kind, data in run["events"] if kind == "summary"]
    assert summary["export"] == reported["path"]
    assert (summary["last_steps"], summary["last_loss"]) == (2, pytest.approx(np.mean(run["losses"][-2:]), rel=1e-12))
    by_hand = Path(export(folder_at(saved(run)), folder_at(root / "exported-by-hand")).path)
    files = {path.name: path.read_bytes() for path in Path(reported["path"]).iterdir()}
    assert files == {path.name: path.read_bytes() for path in by_hand.iterdir()}
    assert sum(len(content) for name, content in files.items() if name.endswith(".safetensors")) == reported["bytes"]


def test_what_cannot_be_exported_is_said(root: Path, make_spec: Make) -> None:
    from shardyard.workers.checkpoint.errors import CheckpointError
    from shardyard.workers.checkpoint.manifest import read, write
    from shardyard.workers.huggingface.export import export
    from shardyard.workers.storage.open_folder import folder_at

    checkpoint = folder_at(saved(train(make_spec({}, steps=1, checkpoint={}), root, "old")))
    manifest = read(checkpoint)
    write(checkpoint, replace(manifest, training={**manifest.training, "model": None}))
    with pytest.raises(CheckpointError, match="does not name its architecture"):
        export(checkpoint, folder_at(root / "exported-old"))
    assert not (root / "exported-old").exists()
    assert not list(root.glob(".exported-old*"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.safetensors.index.json").unlink(), "no readable model.safetensors"),
        (lambda folder: _edit(folder, "config.json", num_hidden_layers=3), "holds model.layers.3"),
        (lambda folder: _edit(folder, "config.json", num_hidden_layers=5), "holds no model.layers.4"),
        (lambda folder: _edit(folder, "config.json", intermediate_size=66), "of shape"),
        (lambda folder: _shard(folder).unlink(), r"has no readable .* in model-00001-of-.*\.safetensors"),
        (lambda folder: os.truncate(_shard(folder), 1000), r"has no readable .* in model-00001-of-.*\.safetensors"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": [1]}'),
            "no readable model.safetensors or index",
        ),
        (lambda folder: _edit_index(folder, lambda names: names.pop("lm_head.weight")), "holds no lm_head.weight"),
    ],
)
def test_files_that_do_not_fit_their_config_are_refused(
    damage: Any, said: str, root: Path, make_spec: Make, published: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(published("llama"), folder)
    damage(folder)
    with pytest.raises(RuntimeError, match=said):
        ours(spec_of(make_spec, folder, {}), root)


def _shard(folder: Path) -> Path:
    return min(folder.glob("model-*.safetensors"))


def _edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def _edit(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
