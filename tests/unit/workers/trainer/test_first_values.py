"""What a rank does while it fills its parameters. Their values: tests/parity/test_first_values.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness.models import LLAMA

from shardyard.strategies.data_strategy import DataStrategy
from shardyard.strategies.mesh import make_mesh
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer.build import TrainerParts, allocate


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[TrainerParts]:
    """Of a world of one rank; the parameters have no values yet."""
    (tmp_path / "corpus.txt").write_text("a line of the corpus\n" * 400)
    data = {"source": "text", "files": [str(tmp_path / "corpus.txt")], "seq_len": 16}
    spec = TrainSpec.model_validate({"model": LLAMA, "data": data, "steps": 1, "global_batch": 2})
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    run = Run(job="a", train=spec, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    yield allocate(run, make_mesh(spec.layout, torch.device("cpu")))
    dist.destroy_process_group()


def test_each_shard_beats_and_all_ranks_are_ready_before_a_collective(
    parts: TrainerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a large model may take longer to read than a collective waits, and than a rank may be without a beat."""
    data, beats, ready = parts.parallel.data, list[int](), list[int]()
    publish, world = data.publish, dist.group.WORLD
    assert world is not None and parts.first_values is not None

    def published(_: DataStrategy) -> None:
        ready.append(world.get_group_store().add("ready: first values", 0))
        publish()

    monkeypatch.setattr(type(data), "publish", published)
    parts.first_values.set(data, lambda: beats.append(1))
    assert len(beats) == len(data.shards) > 10
    assert ready == [1], "every rank has said that it is ready"
