"""What is refused when a model is distributed, before any parameter is allocated."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from torch import nn

from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions, Offload
from shardyard.strategies.mesh import Mesh
from shardyard.strategies.parallelize import Recipe, parallelize
from shardyard.strategies.precision import PRECISIONS, loss_scale_for


class Tied(nn.Module):
    """A module of the user's own whose embedding and head share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(4, 4), nn.Linear(4, 4, bias=False)
        self.blocks = nn.ModuleDict({str(number): nn.Linear(4, 4) for number in range(4)})
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_of_the_optimizer_on_the_host_is_refused_where_ranks_share_a_weight(rank: int) -> None:
    precision = PRECISIONS["fp32"]
    options = MemoryOptions(offload=Offload(optimizer=0.5))
    loss = TokenLoss(8, loss_scale_for(precision, 8), 0.0, 0.0)
    recipe = Recipe(Tied, False, Batch(4, 1, 4, 1), precision, options, loss, Overlap(), lambda: 1.0)
    mesh: Any = SimpleNamespace(serves=False, layout=Layout(pipeline=2), index=lambda _: rank)
    with pytest.raises(Refusal, match="share a weight") as refusal:
        parallelize(recipe, cast(Mesh, mesh))
    assert refusal.value.field == "offload.optimizer"
