"""What the ranks of a stage agree on without a message: which param shards there are, and their order."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.models import LLAMA

from shardyard.strategies.activation_memory.host_optimizer import pick
from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.data_strategy import DataStrategy
from shardyard.strategies.layout import Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions, Offload
from shardyard.strategies.mesh import make_mesh
from shardyard.strategies.parallelize import Recipe, parallelize
from shardyard.strategies.precision import PRECISIONS
from shardyard.workers.dry_run.fake_tensors import FakeStore
from shardyard.workers.models.presets import Architecture
from shardyard.workers.models.registry import make

RANKS = 8
HALF = MemoryOptions(offload=Offload(optimizer=0.5))
MODEL: dict[str, Any] = {key: value for key, value in LLAMA.items() if key != "preset"} | {"kv_heads": 4}


def strategy(rank: int, words: int, layout: Layout, precision: str) -> DataStrategy:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
    try:
        mesh, loss = make_mesh(layout, torch.device("cpu")), TokenLoss(1)
        build, batch = lambda: make(Architecture(**MODEL, vocab=words)), Batch(4, layout.data, 1, 8)
        recipe = Recipe(build, False, batch, PRECISIONS[precision], HALF, loss, Overlap(), loss.share)
        return parallelize(recipe, mesh).data
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("words", "tensor"), [(5, 2), (9, 4)]
)  # of 5 some replicas have no row, of 9 the last tensor rank
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_ranks_of_a_stage_have_the_same_shards_in_the_same_order(
    zero: Any, words: int, tensor: int, precision: str
) -> None:
    """Those without an element are among them: a choice by size is the same on all ranks."""
    layout = Layout(data=RANKS // tensor, tensor=tensor, zero=zero)
    found = [strategy(rank, words, layout, precision) for rank in range(RANKS)]
    everywhere = [[(shard.name, shard.shape) for shard in data.all_shards] for data in found]
    assert all(here == everywhere[0] for here in everywhere)
    assert {len(data.shards) < len(data.all_shards) for data in found} == {False, zero > 0 or tensor == 4}
    for data in found:
        assert data.shards == [shard for shard in data.all_shards if shard.tensor.numel()]
    picked = [pick(data.all_shards, 0.5) for data in found]
    assert all(here == picked[0] for here in picked)
