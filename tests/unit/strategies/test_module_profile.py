"""A profile of a module whose stages pass on several tensors."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.layout import Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.mesh import make_mesh
from shardyard.strategies.module_profile import _Probe
from shardyard.strategies.parallelize import Recipe
from shardyard.strategies.precision import PRECISIONS
from shardyard.workers.dry_run.fake_tensors import FakeStore


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.table = nn.Linear(4, 4), nn.Embedding(8, 4)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return x + self.inner(x) + self.table(tokens)


class Staged(nn.Module):
    """Each block looks up the tokens, which stages pass on beside the hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(8, 4), nn.Linear(4, 8)
        self.blocks = nn.ModuleDict({str(number): Block() for number in range(3)})

    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        if tokens is None:
            x, tokens = self.embed(x), x
        for block in self.blocks.values():
            x = block(x, tokens)
        return (x, tokens) if self.head is None else self.head(x)


def test_stages_that_pass_on_several_tensors_are_measured() -> None:
    """A message has the hidden state [2, 5, 4] in fp32 and the tokens [2, 5] in 64 bits."""
    model, loss = Staged(), TokenLoss(10)
    recipe = Recipe(
        lambda: model, False, Batch(2, 1, 2, 1), PRECISIONS["fp32"], MemoryOptions(), loss, Overlap(), loss.share
    )
    tokens = torch.randint(8, (2, 5))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        probe = _Probe(recipe, make_mesh(Layout(pipeline=2), torch.device("cpu")), tokens, tokens)
        costs = probe.costs()
        _, passed = probe._inner((0,), (torch.zeros(2, 5, 4), tokens), first=False)
    finally:
        dist.destroy_process_group()
    assert (len(costs.blocks), len(costs.messages)) == (3, 4) and min(costs.embed, *costs.blocks, costs.head) > 0
    assert len(set(costs.messages)) == 1, "all of them are of the same size"
    assert [(one.shape, one.dtype) for one in passed] == [((2, 5, 4), torch.float32), ((2, 5), torch.int64)]
