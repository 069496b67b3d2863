import os

import torch

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.snapshot import header
from shardyard.workers.trainer.callbacks.snapshotting import Snapshots
from shardyard.workers.trainer.instruments import Instruments


def test_what_a_snapshot_holds_is_found_without_torch(fds: list[int]) -> None:
    halves = torch.arange(15, dtype=torch.float32).view(3, 5)
    scale = torch.tensor([2.5], dtype=torch.bfloat16)
    pieces = [
        ParamShard("weight", (6, 5), (3, 0), halves, frozenset({"data"})),
        ParamShard("none", (4, 5), (4, 0), torch.empty(0, 5), frozenset({"data"})),
        ParamShard("scale", (1,), (0,), scale, frozenset()),
    ]
    snapshots = Snapshots(fds, 1, pieces, torch.device("cpu"), Instruments())
    snapshots.after(7, 1.0, lambda: {"training": {"step": 7}}, lambda: None)
    snapshots.settle()
    fd = header.segment_of(fds, 7)
    assert fd is not None and header.segment_of(fds, 6) is None
    found = header.read(fd)
    assert found is not None and (found.step, found.facts) == (7, {"training": {"step": 7}})
    weight, none, last = found.slices
    assert (weight.name, weight.offset, weight.size, weight.shape) == ("weight", (3, 0), (3, 5), (6, 5))
    assert (weight.dtype, weight.itemsize, none.elements, last.bytes) == ("torch.float32", 4, 0, 2)
    assert os.pread(fd, weight.bytes, weight.start) == halves.numpy().tobytes()
    assert os.pread(fd, last.bytes, last.start) == scale.view(torch.uint8).numpy().tobytes()


def test_an_empty_segment_holds_nothing(fds: list[int]) -> None:
    assert header.read(fds[0]) is None
