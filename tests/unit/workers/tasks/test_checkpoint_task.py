"""What the cluster does with a checkpoint, in this process: it reports what it finds, and repairs what a dead predecessor left."""

import json
import shutil
from pathlib import Path

import pytest
from harness.stored_checkpoints import (
    FILE,
    checkpoint_path,
    flip_checkpoint_bit,
    save_checkpoint,
    save_model_checkpoint,
)
from safetensors import SafetensorError

from shardyard.workers.checkpoint.manifest import read
from shardyard.workers.huggingface.export import export
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.tasks.checkpoint_task import Operation, Outcome, perform


def verify(path: Path) -> Outcome:
    return perform(Operation("op", "verify", str(path)))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def write_tokenizer(path: Path) -> None:
    """One of three tokens, of which the first ends a text."""
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({"<|endoftext|>": 0, "a": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))


def exported(saved: Path, step: int, dtype: str = "fp32") -> Outcome:
    return perform(Operation("op", "export", str(checkpoint_path(saved, step)), str(saved / "out"), dtype))  # type: ignore[arg-type]


def test_a_checkpoint_is_found_whole_damaged_or_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step)
    flip_checkpoint_bit(tmp_path, 2)
    (checkpoint_path(tmp_path, 3) / "manifest.json").write_text("{}")
    found = [verify(checkpoint_path(tmp_path, step)).result for step in (1, 2, 3, 4)]
    assert all(found)
    assert [(one["verdict"], one["corrupt"]) for one in found if one] == [
        ("valid", []),
        ("corrupt", [FILE]),
        ("corrupt", ["manifest.json"]),
        ("deleted", []),
    ]
    unseen = verify(tmp_path / "nowhere" / "step-00000001").error
    assert unseen and unseen["code"] == "storage_unreachable" and unseen["remedy"]


def test_an_export_is_what_the_command_writes_and_is_kept(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1)
    made = exported(tmp_path, 1).result
    assert made
    by_hand = tmp_path / "by-hand"
    written = export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(by_hand)))
    assert contents(tmp_path / "out") == contents(by_hand)
    assert made == {**vars(written), "path": str(tmp_path / "out"), "dtype": "fp32"}
    folder_at(str(checkpoint_path(tmp_path, 1))).remove_all()
    assert exported(tmp_path, 1).result == made


def test_a_step_that_was_saved_again_is_exported_again(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1)
    assert exported(tmp_path, 1).result
    folder_at(str(checkpoint_path(tmp_path, 1))).remove_all()
    save_model_checkpoint(tmp_path, 1, seq_len=128)
    made = exported(tmp_path, 1).result
    assert made
    export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "by-hand")))
    found, expected = ((tmp_path / name / "shardyard.json").read_bytes() for name in ("out", "by-hand"))
    assert found == expected


def test_an_export_stays_where_the_step_that_was_saved_again_is_corrupt(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1)
    assert exported(tmp_path, 1).result
    before = contents(tmp_path / "out")
    folder_at(str(checkpoint_path(tmp_path, 1))).remove_all()
    save_model_checkpoint(tmp_path, 1, seq_len=128)
    flip_checkpoint_bit(tmp_path, 1)
    error = exported(tmp_path, 1).error
    assert error and error["code"] == "checkpoint_corrupt"
    assert contents(tmp_path / "out") == before


def test_an_export_that_died_while_the_old_one_was_removed_is_made_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model_checkpoint(tmp_path, 1)
    assert exported(tmp_path, 1).result
    folder_at(str(checkpoint_path(tmp_path, 1))).remove_all()
    save_model_checkpoint(tmp_path, 1, seq_len=128)

    def killed(path: Path, **_: object) -> None:
        for name in ("shardyard.json", "model.safetensors"):
            (path / name).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(shutil, "rmtree", killed)
        exported(tmp_path, 1)
    made = exported(tmp_path, 1).result
    export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "by-hand")))
    assert made and made["files"] == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "by-hand")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["by-hand", "out", "step-00000001"]


def test_an_export_without_its_tokenizer_says_so_and_is_made_again_when_that_is_back(tmp_path: Path) -> None:
    tokenizer = tmp_path / "published.json"
    save_model_checkpoint(tmp_path, 1, tokenizer=str(tokenizer))
    made = exported(tmp_path, 1).result
    assert made and f"{tokenizer} does not exist" in made["tokenizer_missing"]
    before = contents(tmp_path / "out")
    assert exported(tmp_path, 1).result == made and contents(tmp_path / "out") == before
    write_tokenizer(tokenizer)
    again = exported(tmp_path, 1).result
    assert again == made | {"tokenizer_missing": None}
    ends = [
        json.loads(contents(tmp_path / "out")[name])["eos_token_id"]
        for name in ("config.json", "generation_config.json")
    ]
    assert ends == [0, 0] and (tmp_path / "out" / "tokenizer.json").exists()
    tokenizer.unlink()
    assert exported(tmp_path, 1).result == again


@pytest.mark.parametrize(
    ("step", "code"), [(2, "checkpoint_corrupt"), (3, "checkpoint_deleted"), (4, "checkpoint_unusable")]
)
def test_what_cannot_be_exported_says_why_and_leaves_nothing(tmp_path: Path, step: int, code: str) -> None:
    save_model_checkpoint(tmp_path, 2)
    flip_checkpoint_bit(tmp_path, 2)
    save_checkpoint(tmp_path, 4)
    error = exported(tmp_path, step).error
    assert error and error["code"] == code and error["message"] and error["remedy"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-00000002", "step-00000004"]


def test_a_disk_without_room_is_the_exports_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    save_model_checkpoint(tmp_path, 1)
    error = exported(tmp_path, 1).error
    assert error and error["code"] == "export_failed" and "No space left on device" in error["message"]
    assert not (tmp_path / "out").exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").touch()
    error = exported(tmp_path, 1).error
    assert error and error["code"] == "export_in_the_way" and (tmp_path / "out" / "notes").exists()


def test_a_checkpoint_is_pinned_and_unpinned_and_its_manifest_named(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step)
    path = checkpoint_path(tmp_path, 1)
    for _ in range(2):
        assert perform(Operation("op", "pin", str(path))).result == {
            "pinned": True,
            "digest": read(folder_at(path)).sha256,
        }
    assert (path / "pinned").exists()
    for _ in range(2):
        assert perform(Operation("op", "unpin", str(path))).result == {"pinned": False, "digest": None}
    assert not (path / "pinned").exists()
    gone = perform(Operation("op", "pin", str(checkpoint_path(tmp_path, 3)))).error
    assert gone and gone["code"] == "checkpoint_deleted"
    pin = Operation("op", "pin", str(checkpoint_path(tmp_path, 2)))
    assert perform(pin).error is None
    (checkpoint_path(tmp_path, 2) / "removing").touch()  # a save looks for pins now, and will find the first one
    failed = perform(pin).error
    assert failed and (failed["code"], bool(failed["remedy"])) == ("pin_failed", True)
    assert (checkpoint_path(tmp_path, 2) / "pinned").exists()
