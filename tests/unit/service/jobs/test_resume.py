"""What a spec or a manifest shows of other data is refused before anything runs; the rest is left to the trainers."""

from pathlib import Path
from typing import Any

import pytest

from shardyard.service.errors import CheckpointCorrupt, ResumeMismatch
from shardyard.service.jobs import resume as resuming
from shardyard.service.jobs.resume import check_resumed
from shardyard.workers.checkpoint.manifest import MANIFEST, Manifest, Tensor, write
from shardyard.workers.checkpoint.retention import folder
from shardyard.workers.data.position import Position, SampleOrder
from shardyard.workers.spec import TrainSpec
from shardyard.workers.storage.errors import StorageUnreadable
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at

ORDER = SampleOrder("text", "bytes", 256, 0.05, 0)


def spec(**fields: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 10, "global_batch": 4, "resume_from": "there", **fields})


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A checkpoint of step 4."""
    write(folder_at(tmp_path), Manifest(4, {"data": Position(ORDER, 8).state(4)}, {}, {}))
    return str(tmp_path)


OTHERS: dict[str, dict[str, Any]] = {
    "train.data.seq_len": {"data": {"seq_len": 128}},
    "train.data.validation": {"data": {"validation": 0.1}},
    "train.seed": {"seed": 1},
    "train.steps": {"steps": 4},
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_manifest_that_is_seen_decides(field: str, checkpoint: str) -> None:
    same_spec = spec(**OTHERS[field])
    with pytest.raises(ResumeMismatch) as refused:
        check_resumed(same_spec, checkpoint, same_spec, local_files=True)
    assert refused.value.field == field and refused.value.remedy


def test_a_model_with_other_heads_is_refused_whatever_its_data(tmp_path: Path) -> None:
    saved = spec(model={"preset": "nano"}).architecture(vocab=256)
    assert saved is not None
    write(folder_at(tmp_path), Manifest(4, {"data": {}, "model": saved.model_dump()}, {}, {}))
    check_resumed(spec(model={"preset": "nano"}), str(tmp_path), None, local_files=True)
    other = spec(model={"preset": "nano", "heads": 2, "kv_heads": 1}, resume_data="restart")
    with pytest.raises(ResumeMismatch, match="heads 4, kv_heads 2, and this one has heads 2") as refused:
        check_resumed(other, str(tmp_path), None, local_files=True)
    assert refused.value.field == "train.model.heads"


MOE = {"family": "moe", "preset": "nano"}


@pytest.mark.parametrize(
    ("before", "now", "field"),
    [
        ({}, {"layers": 5}, "layers"),
        ({}, {"dim": 256}, "dim"),
        ({}, {"hidden": 300}, "hidden"),
        ({}, {"vocab": 300}, "vocab"),
        ({}, MOE, "family"),
        (MOE, {**MOE, "experts": 8}, "experts"),
        (MOE, {**MOE, "balance": "bias"}, "balance"),
    ],
)
@pytest.mark.parametrize("seen", [True, False])
def test_a_model_with_other_weights_is_refused(
    before: dict[str, Any], now: dict[str, Any], field: str, seen: bool, tmp_path: Path
) -> None:
    """By the manifest or, where that is not seen, by the spec of the job that saved it."""
    source = spec(model=before)
    saved = source.architecture(vocab=256)
    assert saved is not None
    write(folder_at(tmp_path), Manifest(4, {"data": {}, "model": saved.model_dump()}, {}, {}))
    known = None if seen else source
    check_resumed(source, str(tmp_path), known, local_files=seen)
    with pytest.raises(ResumeMismatch, match="weights do not fit") as refused:
        check_resumed(spec(model=now), str(tmp_path), known, local_files=seen)
    assert refused.value.field == f"train.model.{field}" and refused.value.remedy


def test_the_size_of_a_vocabulary_that_only_the_tokenizer_says_is_left_to_the_trainers(tmp_path: Path) -> None:
    theirs = {"data": {"tokenizer": "/its.json"}}
    check_resumed(spec(**theirs), str(tmp_path), spec(**theirs, model={"vocab": 300}), local_files=False)
    check_resumed(spec(**theirs, model={"vocab": 300}), str(tmp_path), spec(**theirs), local_files=False)
    with pytest.raises(ResumeMismatch, match="vocab 300, and this one has vocab 400"):
        check_resumed(
            spec(**theirs, model={"vocab": 400}), str(tmp_path), spec(**theirs, model={"vocab": 300}), local_files=False
        )


@pytest.mark.parametrize(("saved", "now"), [("adamw", "sgd"), ("sgd", "adamw")])
def test_another_optimizer_is_refused(saved: str, now: str, tmp_path: Path) -> None:
    state = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}[saved]
    names = ("head.weight", *(f"optimizer.{part}.head.weight" for part in state))
    write(folder_at(tmp_path), Manifest(4, {"data": {}}, {name: Tensor("F32", (1,)) for name in names}, {}))
    for source, seen in ((None, True), (spec(optimizer={"name": saved}), False)):
        check_resumed(spec(optimizer={"name": saved, "lr": 0.5}), str(tmp_path), source, local_files=seen)
        with pytest.raises(ResumeMismatch, match=f"state of {saved}") as refused:
            check_resumed(spec(optimizer={"name": now}), str(tmp_path), source, local_files=seen)
        assert refused.value.field == "train.optimizer.name"
        assert refused.value.remedy == f"Set train.optimizer.name to {saved}, or leave train.resume_from out."
    check_resumed(spec(optimizer={"name": now}), str(tmp_path), None, local_files=False)


def test_longer_sequences_than_learned_positions_are_refused_though_the_data_restart(tmp_path: Path) -> None:
    gpt2 = {"model": {"family": "gpt2", "preset": "nano"}, "resume_data": "restart"}
    saved = spec(**gpt2).architecture(vocab=256)
    assert saved is not None
    write(folder_at(tmp_path), Manifest(4, {"data": {}, "model": saved.model_dump()}, {}, {}))
    check_resumed(spec(**gpt2, data={"seq_len": 1024}), str(tmp_path), None, local_files=True)
    with pytest.raises(ResumeMismatch, match="has 1024 learned positions, not 2048") as refused:
        check_resumed(spec(**gpt2, data={"seq_len": 2048}), str(tmp_path), None, local_files=True)
    assert refused.value.field == "train.data.seq_len"


def test_another_tokenizer_is_seen_where_one_of_them_is_bytes(tmp_path: Path) -> None:
    order = SampleOrder("text", "a digest", 256, 0.05, 0)
    write(folder_at(tmp_path), Manifest(4, {"data": Position(order, 8).state(4)}, {}, {}))
    with pytest.raises(ResumeMismatch, match="another tokenizer"):
        check_resumed(spec(), str(tmp_path), None, local_files=True)
    check_resumed(spec(data={"tokenizer": "/its.json"}), str(tmp_path), None, local_files=True)


@pytest.mark.parametrize(
    "fields", [{"global_batch": 64}, {"layout": {"data": 2}}, {"resume_data": "restart", "data": {"seq_len": 128}}]
)
def test_what_can_go_on_is_not_refused(fields: dict[str, Any], checkpoint: str) -> None:
    check_resumed(spec(**fields), checkpoint, None, local_files=True)


@pytest.mark.parametrize("resume", ["s3://bucket/job/step-00000004", "/not/seen/step-00000004"])
def test_else_the_spec_of_the_job_that_saved_it_decides(resume: str) -> None:
    with pytest.raises(ResumeMismatch, match="trained with 256, not 128"):
        check_resumed(spec(data={"seq_len": 128}), resume, spec(), local_files=True)
    check_resumed(spec(), resume, spec(global_batch=8), local_files=False)
    check_resumed(spec(data={"seq_len": 128}), resume, None, local_files=True)


@pytest.mark.parametrize("content", [b"{}", b"", b"[" * 100_000, b"\xff"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(CheckpointCorrupt) as refused:
        check_resumed(spec(), str(tmp_path), None, local_files=True)
    assert refused.value.field == "train.resume_from" and refused.value.remedy
    check_resumed(spec(), str(tmp_path), None, local_files=False)


def test_a_large_manifest_is_left_to_the_trainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "_MAX_BYTES", 8)
    write(folder_at(tmp_path / "large"), Manifest(4, {"data": Position(ORDER, 8).state(4)}, {}, {}))
    check_resumed(spec(seed=1), str(tmp_path / "large"), None, local_files=True)


def test_a_corrupt_checkpoint_is_refused_though_the_one_before_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 20, 30):
        write(folder(folder_at(tmp_path), step), Manifest(step, {}, {}, {}))
    newest, bad = (folder(folder_at(tmp_path), step) for step in (30, 20))
    newest.write(MANIFEST, memoryview(b"{}"))
    usual = resuming.read

    def read(path: Folder) -> Manifest:
        if path == bad:
            raise StorageUnreadable("a bad sector")
        return usual(path)

    monkeypatch.setattr(resuming, "read", read)
    with pytest.raises(CheckpointCorrupt) as refused:
        check_resumed(spec(), str(newest), None, local_files=True)
    assert str(folder(folder_at(tmp_path), 10)) in (refused.value.remedy or "")


@pytest.mark.parametrize("name", ["step-00000010-good", "best"])
def test_a_corrupt_checkpoint_of_any_name_is_refused_with_one_beside_it(tmp_path: Path, name: str) -> None:
    beside = folder(folder_at(tmp_path), 20)
    write(beside, Manifest(20, {}, {}, {}))
    (tmp_path / name).mkdir()
    (tmp_path / name / MANIFEST).write_bytes(b"{}")
    with pytest.raises(CheckpointCorrupt) as refused:
        check_resumed(spec(), str(tmp_path / name), None, local_files=True)
    assert str(beside) in (refused.value.remedy or "")
