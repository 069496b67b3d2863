"""Chunks that are made when they are asked for equal those that torch makes all at once."""

import pytest
import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param

from shardyard.workers.dry_run.fake_shards import Chunks


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(8, 6), (7, 5), (3, 2), (1, 1)], ids=str)
def test_each_chunk_is_torchs(shape: tuple[int, int], dim: int) -> None:
    tensor = torch.randn(shape)
    whole = _fsdp_param._chunk_with_empty(tensor, 4, dim=dim)
    made = Chunks(tensor, 4, dim)
    assert len(made) == len(whole)
    for place, chunk in enumerate(whole):
        assert torch.equal(made[place], chunk)
        assert made[place].stride() == chunk.stride()
        assert chunk.numel() == 0 or made[place].data_ptr() == chunk.data_ptr(), "a view"
