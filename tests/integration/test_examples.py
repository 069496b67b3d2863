"""Every example is a spec that trains: each for a few steps on real ranks. Those that differ only in their layout have the same losses."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import train

from shardyard.api import spec_file
from shardyard.api.http.sweep_document import read_sweep
from shardyard.api.http.validation_errors import read_spec, read_training_spec
from shardyard.service.jobs.advice import Cpus
from shardyard.service.jobs.auto_layout import Devices, decided
from shardyard.service.jobs.validation import check_layout
from shardyard.service.spec import JobSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
SPECS = sorted(EXAMPLES.glob("*.yaml"))
#: Those that train; what runs a command is tested in tests/acceptance/test_commands.py.
TRAINING = [path for path in SPECS if "train" in spec_file.load(path)]
#: Those with a data source of their own.
OF_OWN_SOURCES = [path for path in TRAINING if ":" in spec_file.load(path)["train"].get("data", {}).get("source", "")]
#: The same model, data and batch on another layout.
SAME_LOSSES = (
    "data",
    "zero",
    "hsdp",
    "offload",
    "bmtrain",
    "tensor",
    "sequence",
    "context",
    "context-all-gather",
    "context-self-attention",
    "pipeline",
    "pipeline-gpipe",
    "pipeline-interleaved",
    "pipeline-profile",
    "pipeline-zero-bubble",
    "three-d",
    "quickstart",
    "elastic",
    "parameter-server",
    "tensor-chunks",
    "tensor-grid",
    "tensor-depth",
    "tensor-cube",
    "auto",
)
WEIGHTS = EXAMPLES.parent / ".tools" / "SmolLM2-135M"


#: Steps of those that do not show what they learn in two, or whose steps are long. With delayed gradients the second step has the first
#: weights too.
DELAYED = ("pipeline-2bw", "pipeline-pipedream", "pipeline-vertical-sync")
STEPS = {"smollm2": 1, **dict.fromkeys(DELAYED, 3), "speech": 6, "t5": 8, "t5-pipeline": 8, "lora": 14}


def placed(spec: JobSpec) -> JobSpec:
    """With the layout that the advisor chooses for four cores, where the spec leaves that to it."""
    if not spec.train.undecided:
        return spec
    return decided(spec, spec.train.architecture(256), Devices(Cpus(4), 4))


def shortened(path: Path, folder: Path) -> dict[str, Any]:
    """The spec's training as it stands, for a few steps, and without what it leaves behind. `folder`: has files as CIFAR-10 has them."""
    spec = spec_file.load(path)["train"]
    if path.stem == "auto":
        spec = placed(read_training_spec(spec_file.load(path))).train.model_dump(mode="json", by_alias=True)
    if path.stem == "cifar":
        spec = {**spec, "data": {**spec["data"], "options": {"folder": str(folder)}}}
    few = {
        "steps": STEPS.get(path.stem, 2),
        "probe": {"every": None},
        "snapshot": {"every": 0},
        "checkpoint": {"final": False},
    }
    return {**spec, **few, "eval": {"batches": 1}, "schedule": {"name": "constant"}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One token cache for all, and images in files: a class is a brightness."""
    folder = tmp_path_factory.mktemp("examples")
    labels = np.arange(64, dtype=np.uint8)[:, None] % 10
    noise = np.random.default_rng(0).integers(0, 20, (64, 3072), np.uint8)
    images = np.concatenate([labels, 20 * labels + noise], 1)
    for name, rows in (("data_batch_1", images[:24]), ("data_batch_2", images[24:48]), ("test_batch", images[48:])):
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


@pytest.fixture(scope="module")
def same_losses(root: Path) -> list[float]:
    """The losses that all of `SAME_LOSSES` must have."""
    losses: list[float] = train(shortened(EXAMPLES / "data.yaml", root), root, "reference")["losses"]
    return losses


#: Those that the core trains; the others only say that they would be accepted.
TRAINED = ("quickstart", "own-module", "vit")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in TRAINED else pytest.mark.full, id=path.stem) for path in TRAINING],
)
def test_it_trains(path: Path, root: Path, request: pytest.FixtureRequest) -> None:
    if path.stem == "smollm2" and not WEIGHTS.exists():
        pytest.skip("needs the weights of SmolLM2-135M: make smollm")
    losses = train(shortened(path, root), root, path.stem)["losses"]
    if path.stem == "smollm2":
        assert losses[0] < 6.0  # it has learned: one that knows nothing is at ln 49,152 = 10.8
        return
    assert len(losses) == STEPS.get(path.stem, 2)
    assert losses[-1] < losses[0]
    if path.stem in SAME_LOSSES:
        assert losses == pytest.approx(request.getfixturevalue("same_losses"), rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("path", OF_OWN_SOURCES, ids=lambda path: path.stem)
def test_a_source_of_its_own_has_the_losses_of_one_process(path: Path, root: Path) -> None:
    few = {**shortened(path, root), "steps": 2, "precision": "fp64"}
    found, alone = (train(spec, root, f"{path.stem}-{len(spec['layout'])}") for spec in (few, {**few, "layout": {}}))
    assert found["losses"] == pytest.approx(alone["losses"], rel=1e-10)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_it_is_accepted_as_it_stands_and_explains_itself(path: Path) -> None:
    text = path.read_text()
    document = spec_file.load(path)
    command = "submit" if "sweep" in document else "run"
    assert f"#   shardyard {command} examples/{path.name}\n" in text
    assert len(text.partition("name:")[0].splitlines()) >= 2
    spec = read_sweep(document)[1] if "sweep" in document else read_spec(document)
    assert spec.name == path.stem
    stored = json.loads(spec.model_dump_json(by_alias=True))
    assert read_spec(stored) == spec  # as a retry, or another layout of the job, reads it
    if isinstance(spec, JobSpec) and (path.stem != "smollm2" or WEIGHTS.exists()):
        check_layout(placed(spec).train, 256)


def listed() -> list[str]:
    """The examples in the order of their README."""
    return re.findall(r"^\| \[(.+?)\.yaml\]\(\1\.yaml\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)


def test_those_before_elastic_have_the_same_losses_but_for_the_one_that_rounds() -> None:
    before = listed()[: listed().index("elastic")]
    assert {*before, "elastic"} == {*SAME_LOSSES, "zero-plus-plus"}
    trained = {name: read_training_spec(spec_file.load(EXAMPLES / f"{name}.yaml")).train for name in before}
    counts = ("model", "data", "loss", "optimizer", "schedule", "steps", "global_batch", "seed")
    first = trained["data"]
    assert [
        name for name in before if any(getattr(trained[name], part) != getattr(first, part) for part in counts)
    ] == []


def test_every_axis_and_every_file_is_covered() -> None:
    assert len(SPECS) >= 8
    assert sorted(f"{name}.yaml" for name in listed()) == [path.name for path in SPECS]
    specs = [spec_file.load(path) for path in SPECS]
    modules = [spec["train"].get("model", {}).get("code") for spec in specs if "train" in spec]
    programs = [spec.get("code", {}).get("dir") for spec in specs]
    folders = {Path(folder) for folder in (*modules, *programs) if folder}
    # Another process may just be writing bytecode there, under a name of its own.
    found = (path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    rest = {path for path in found if path.suffix not in {".yaml", ".md"}}
    assert rest == {path for folder in folders for path in folder.resolve().glob("*.py")}
    degrees = {name: read_training_spec(spec_file.load(EXAMPLES / f"{name}.yaml")).train.layout for name in SAME_LOSSES}
    alone = {"data": "data", "tensor": "tensor", "context": "context", "pipeline": "pipeline"}
    for name, axis in alone.items():
        assert getattr(degrees[name], axis) == degrees[name].world_size > 1
