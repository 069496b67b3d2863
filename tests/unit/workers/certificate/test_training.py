"""What ranks printed is read back, and a rank that fails is quoted."""

from pathlib import Path

import pytest

from shardyard.workers.certificate.exact_spec import exact
from shardyard.workers.certificate.training import TrainingFailed, trained
from shardyard.workers.spec import TrainSpec

OWN = """
import torch
def make(vocab_size, **_):
    raise RuntimeError("no such model")
"""


@pytest.mark.full
def test_a_failed_training_quotes_what_its_ranks_printed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    model = {"import": "own:make", "code": str(tmp_path), "args": {"vocab_size": 256}}
    train = TrainSpec.model_validate({"model": model, "steps": 2, "global_batch": 2})
    with pytest.raises(TrainingFailed, match="no such model") as failed:
        trained(exact(train, 2), "layout", tmp_path)
    assert failed.value.status == 1
    assert failed.value.cause == "RuntimeError: no such model"


def test_the_cause_is_the_last_line_that_a_rank_printed_itself() -> None:
    printed = "[rank 1] [rank1]: ValueError: no\n[rank 1] shardyard: this rank exited with status 1"
    assert TrainingFailed(1, printed).cause == "ValueError: no"
    assert TrainingFailed(137, "shardyard: this rank was ended by SIGKILL").cause == "it printed nothing"
