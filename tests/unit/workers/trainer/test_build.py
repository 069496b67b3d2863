"""The start of a trainer beats for as long as it makes the tokens of its corpus, which may take hours."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness.models import LLAMA

from shardyard.strategies.mesh import make_mesh
from shardyard.workers.data import token_cache
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer.build import allocate
from shardyard.workers.trainer.heartbeat import Heartbeat


@pytest.fixture
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_start_beats_while_it_makes_tokens(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus.txt").write_text("a line of the corpus\n" * 400)
    data = {"source": "text", "files": [str(tmp_path / "corpus.txt")], "seq_len": 16}
    spec = TrainSpec.model_validate({"model": LLAMA, "data": data, "steps": 1, "global_batch": 2})
    run = Run(job="a", train=spec, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    heartbeat, at = Heartbeat(), []
    real = token_cache.documents

    def documents(source: token_cache.Source) -> Iterator[str | None]:
        at.append(heartbeat.at)
        yield from real(source)

    monkeypatch.setattr(token_cache, "documents", documents)
    began = heartbeat.at
    allocate(run, make_mesh(spec.layout, torch.device("cpu")), beat=heartbeat.starting)
    assert (heartbeat.phase, heartbeat.step) == ("start", 0)
    (before_writing,) = at
    assert began < before_writing < heartbeat.at, "it beats as it reads the files, and as it writes the tokens"
