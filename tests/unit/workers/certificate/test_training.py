"""The events of a training become its numbers, and a rank that fails is quoted."""

from pathlib import Path

import pytest

from shardyard.workers.certificate.exact_spec import exact
from shardyard.workers.certificate.training import Training, _events, read, trained
from shardyard.workers.program.captured_run import RanksFailed
from shardyard.workers.spec import TrainSpec

OWN = """
def make(vocab_size, **_):
    raise RuntimeError("no such model")
"""
PRINTED = """\
a line of the model's own
{"kind": "plan", "data": {"parameters": 7}}
{"kind": "step", "data": {"step": 1, "loss": 5.5, "grad_norm": 2.0}}
{"kind": "probe", "data": {"traffic": {}}}
{"kind": "step", "data": {"step": 2, "loss": 5.25, "grad_norm": 1.0}}
{"kind": "eval", "data": {"loss": 5.125}}
"""


def test_events_become_numbers() -> None:
    found = read(_events(iter(PRINTED.splitlines())), "/c")
    assert found == Training((5.5, 5.25), (2.0, 1.0), (5.125,), {"parameters": 7}, {"traffic": {}}, "/c/step-00000002")


@pytest.mark.full
def test_a_failed_training_quotes_what_its_ranks_printed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    model = {"import": "own:make", "code": str(tmp_path), "args": {"vocab_size": 256}}
    train = TrainSpec.model_validate({"model": model, "steps": 2, "global_batch": 2})
    with pytest.raises(RanksFailed, match="no such model") as failed:
        trained(exact(train, 2), "layout", tmp_path)
    assert (failed.value.status, failed.value.cause) == (1, "RuntimeError: no such model")


@pytest.mark.full
def test_the_trainings_of_a_certificate_share_their_tokens(tmp_path: Path) -> None:
    text, folder = tmp_path / "text.txt", tmp_path / "certificate"
    text.write_text("abcab" * 100)
    folder.mkdir()
    model = {"preset": "nano", "layers": 1, "dim": 16, "heads": 2}
    data = {"source": "text", "files": [str(text)], "seq_len": 16}
    train = exact(TrainSpec.model_validate({"model": model, "data": data, "steps": 2, "global_batch": 2}), 2)
    found = [trained(train, name, folder) for name in ("layout", "alone")]
    (tokens,) = tmp_path.rglob("*.tokens")
    assert tokens.stat().st_mtime_ns < (folder / "alone.json").stat().st_mtime_ns  # made before the second began
    assert found[0].losses == found[1].losses
    assert [Path(one.checkpoint, "manifest.json").is_file() for one in found] == [True, True]
    assert found[0].checkpoint != found[1].checkpoint
