"""A rank's file is the same whether it is made in host memory or on the disk of the optimizer's state."""

import gc
from pathlib import Path

import pytest
import torch
from harness.disk import SmallDisk

from shardyard.strategies.activation_memory.state_file import StateDiskError, StateFile
from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.checkpoint.staging_buffer import StagingBuffer


def _shards() -> list[ParamShard]:
    generator = torch.Generator().manual_seed(0)
    tensors = {"w": torch.randn(5, 7, generator=generator).t(), "b": torch.randn(3, generator=generator).bfloat16()}
    return [ParamShard(name, tuple(t.shape), (0,) * t.dim(), t, frozenset()) for name, t in tensors.items()]


def test_a_disk_holds_the_bytes_of_memory(tmp_path: Path) -> None:
    shards, file = _shards(), StateFile(tmp_path)
    memory, disk = StagingBuffer(shards, torch.device("cpu")), StagingBuffer(shards, torch.device("cpu"), file)
    assert 0 < file.bytes == -(-len(memory.content()) // 4096) * 4096
    for turn in range(2):
        for buffer in (memory, disk):
            buffer.take()
        assert bytes(memory.content()) == bytes(disk.content()), turn
        shards[0].tensor.add_(1)
    assert disk.slices == memory.slices and disk.tensors == memory.tensors


def test_its_room_is_taken_when_it_is_made() -> None:
    try:
        small = SmallDisk()
    except OSError as error:
        pytest.skip(str(error))
    try:
        large = ParamShard("w", (SmallDisk.BYTES,), (0,), torch.empty(SmallDisk.BYTES), frozenset())
        with pytest.raises(StateDiskError, match="no room") as caught:
            StagingBuffer([large], torch.device("cpu"), StateFile(small.folder))
        assert caught.value.code == "state_disk_full"
        del caught
        gc.collect()
    finally:
        small.end()
