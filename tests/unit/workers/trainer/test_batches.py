from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardyard.strategies.layout import Batch
from shardyard.workers.trainer.batches import Batches, _rows, _step_seed


def parts(data: int, rank: int) -> Any:
    """What a rank's batches are made of: 3 micro-batches of 2 rows on each of `data` ranks."""
    mesh = SimpleNamespace(index=lambda axis: rank if axis == "data" else 0, device=torch.device("cpu"))
    batch = Batch(6 * data, data, 3, 2)
    return SimpleNamespace(batch=batch, mesh=mesh, spec=SimpleNamespace(seed=7))


def test_ranks_share_each_micro_batch_of_the_global_batch() -> None:
    assert [_rows(parts(2, rank)).tolist() for rank in (0, 1)] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert _rows(parts(1, 0)).tolist() == list(range(6))


@pytest.mark.parametrize("step", [1, 2, 10_000])
def test_a_step_draws_what_its_seed_says(step: int) -> None:
    torch.manual_seed(_step_seed(7, step, 0))
    drawn = torch.rand(8)
    batches = Batches(parts(2, 1), SimpleNamespace())  # type: ignore[arg-type]
    for _ in range(2):
        batches.seed(step)
        assert torch.equal(torch.rand(8), drawn)
    batches.seed(step + 1)
    assert not torch.equal(torch.rand(8), drawn)
    assert _step_seed(7, step, 0) != _step_seed(7, step, 1)
