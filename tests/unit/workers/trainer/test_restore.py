"""What a restore says, and what it does not wait for. With real checkpoints: tests/parity/test_checkpointing.py."""

import queue
import threading
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.strategies.layout import Refusal
from shardyard.workers.checkpoint.errors import CheckpointError
from shardyard.workers.checkpoint.manifest import Manifest, read, write
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.trainer import restore
from shardyard.workers.trainer.restore import refuse_frozen, say_precision


@pytest.mark.parametrize(
    ("before", "said"),
    [("fp32", "The checkpoint was computed in fp32, and this run continues in bf16.\n"), ("bf16", ""), (None, "")],
)
def test_another_precision_is_one_line(before: str | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint of an older version does not record its own."""
    say_precision(before, "bf16")
    assert capsys.readouterr().err == said


def test_a_frozen_weight_that_was_trained_is_refused_with_its_name() -> None:
    saved = {"head.weight", "base.weight", "optimizer.exp_avg.base.weight"}
    refuse_frozen({"teacher.weight"}, saved)
    with pytest.raises(Refusal, match=r"base\.weight, frozen here, was trained in the checkpoint") as refusal:
        refuse_frozen({"teacher.weight", "base.weight"}, saved)
    assert refusal.value.field == "model.import" and "another name" in refusal.value.remedy


def test_a_manifest_on_storage_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount whose server is away holds a call for ever, and a rank that stands in it for long is a hang."""
    there = folder_at(tmp_path)
    write(there, Manifest(4, {}, {}, {}))
    assert restore._read_within(PATIENCE_S, there).step == 4
    with pytest.raises(CheckpointError):
        restore._read_within(PATIENCE_S, folder_at(tmp_path / "missing"))
    back = threading.Event()

    def away(path: Folder) -> Manifest:
        assert back.wait(PATIENCE_S)
        return read(path)

    monkeypatch.setattr(restore, "read", away)
    with pytest.raises(queue.Empty):
        restore._read_within(0.01, there)
    back.set()
