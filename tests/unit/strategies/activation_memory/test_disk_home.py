"""State on a disk makes the same bits as in memory, through a bounded number of buffers. After a step that fails each further one fails."""

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.memory_cgroup import run_within

from shardyard.strategies.activation_memory.disk_buffer import Extent
from shardyard.strategies.activation_memory.disk_home import DiskHome
from shardyard.strategies.activation_memory.host_optimizer import STRIDE, HostOptimizer
from shardyard.strategies.activation_memory.state_file import PAGE, StateDiskError, StateFile
from shardyard.strategies.param_shard import DeviceSide, ParamShard
from shardyard.workers.spec import OptimizerSpec
from shardyard.workers.trainer.optimizer import make_optimizer

from .test_host_optimizer import assert_restored_state_is_used, assert_same, give_gradients, shards, state_of

BUCKET = 4 * STRIDE  # bytes: a stride of fp32


def on_disk(
    parts: Sequence[ParamShard], spec: OptimizerSpec, file: StateFile, share: float = 1.0, **how: int
) -> tuple[Any, DiskHome]:
    home = DiskHome(file, how.get("buffers", 3))
    make = lambda some: make_optimizer(some, spec)  # noqa: E731
    return HostOptimizer(parts, share, make, how.get("bucket", BUCKET), home), home


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize(("bucket", "buffers"), [(BUCKET, 1), (BUCKET, 2), (BUCKET, 3), (BUCKET, 99), (1 << 20, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_as_without_offload(
    name: str, share: float, bucket: int, buffers: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    spec, file = OptimizerSpec(name=name, lr=0.1, weight_decay=0.1), StateFile(tmp_path)
    plain, moved = shards(dtype), shards(dtype)
    expected = make_optimizer(plain, spec)
    found, _ = on_disk(moved, spec, file, share, bucket=bucket, buffers=buffers)
    for step in range(4):
        for parts, optimizer in ((plain, expected), (moved, found)):
            give_gradients(parts, step)
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
            optimizer.step()
        assert_same(state_of(moved, found), state_of(plain, expected))


def test_masters_are_on_the_disk_and_send_rounded_values(tmp_path: Path) -> None:
    spec, file, plain = OptimizerSpec(lr=0.1, weight_decay=0.1), StateFile(tmp_path), shards()
    moved = [replace(shard, on_device=DeviceSide(torch.zeros_like(shard.tensor).bfloat16())) for shard in shards()]
    expected, (found, _) = make_optimizer(plain, spec), on_disk(moved, spec, file)
    assert all(file.holds(tensor) for tensor in state_of(moved, found))
    for step in range(3):
        give_gradients(plain, step)
        expected.step()
        for shard, other in zip(moved, plain, strict=True):
            shard.set_gradient(other.gradient)
        found.step()
        assert_same(state_of(moved, found), state_of(plain, expected))
        assert all(torch.equal(s.on_device.value, s.tensor.bfloat16()) for s in moved if s.on_device is not None)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("bucket", "buffers"), [(BUCKET, 1), (BUCKET, 3), (1 << 20, 4)])
def test_values_that_are_on_the_disk_alone_are_updated_there(
    name: str, dtype: torch.dtype, bucket: int, buffers: int, tmp_path: Path
) -> None:
    spec, file, plain = OptimizerSpec(name=name, lr=0.1, weight_decay=0.1), StateFile(tmp_path), shards(dtype)
    moved = [replace(shard, tensor=file.copy(shard.tensor)) for shard in shards(dtype)]
    moved.append(ParamShard("scale", (1,), (0,), torch.ones(1, dtype=dtype), frozenset()))  # one that stays in memory
    plain.append(replace(moved[-1], tensor=torch.ones(1, dtype=dtype)))
    expected = make_optimizer(plain, spec)
    found, _ = on_disk(moved, spec, file, bucket=bucket, buffers=buffers)
    for step in range(4):
        for parts, optimizer in ((plain, expected), (moved, found)):
            give_gradients(parts, step)
            optimizer.step()
        assert_same(state_of(moved, found), state_of(plain, expected))
    assert all(file.holds(shard.tensor) for shard in moved[:-1])


def test_values_on_the_disk_alone_need_no_buffers_on_their_way_up(tmp_path: Path) -> None:
    file, count = StateFile(tmp_path), 10 * STRIDE
    shard = ParamShard("w", (count,), (0,), file.copy(torch.randn(count)), frozenset())
    optimizer, _ = on_disk([shard], OptimizerSpec(), file)
    assert [buffer.nbytes for buffer in optimizer._gradients] == 2 * [BUCKET]
    assert not any(buffer.nbytes for buffer in optimizer._values)
    assert file.bytes == 3 * 4 * count
    shard.set_gradient(torch.ones(count))
    optimizer.step()
    use = file.take_use()
    assert (use.read, use.written) == (file.bytes, file.bytes)


def test_restored_state_is_used_by_the_next_step(tmp_path: Path) -> None:
    assert_restored_state_is_used(lambda parts, spec: on_disk(parts, spec, StateFile(tmp_path))[0])


def test_a_transposed_shard_keeps_its_order_in_memory(tmp_path: Path) -> None:
    spec, given, gradient = OptimizerSpec(lr=0.1), torch.randn(4, 2 * STRIDE), torch.randn(4, 2 * STRIDE)
    parts = [ParamShard("w", (2 * STRIDE, 4), (0, 0), given.clone().t(), frozenset()) for _ in range(2)]
    for shard, optimizer in (
        (parts[0], make_optimizer(parts[:1], spec)),
        (parts[1], on_disk(parts[1:], spec, StateFile(tmp_path))[0]),
    ):
        shard.tensor.grad = gradient.clone().t()
        optimizer.step()
    assert torch.equal(parts[0].tensor, parts[1].tensor)


@pytest.mark.parametrize("masters", [True, False])
@pytest.mark.parametrize(("name", "moments"), [("adamw", 2), ("sgd", 1)])
def test_buffers_are_bounded_and_each_byte_moves_once(name: str, moments: int, masters: bool, tmp_path: Path) -> None:
    """Values that the device has are not on the disk."""
    count = 10 * STRIDE
    shard = ParamShard("w", (count,), (0,), torch.randn(count), frozenset())
    if masters:
        shard = replace(shard, on_device=DeviceSide(torch.zeros(count).bfloat16()))
    file = StateFile(tmp_path)
    optimizer, home = on_disk([shard], OptimizerSpec(name=name), file)
    assert home.buffer_bytes == 3 * (1 + moments) * BUCKET
    assert [buffer.nbytes for buffer in optimizer._gradients] == 2 * [BUCKET if masters else 2 * BUCKET]
    assert file.bytes == (moments + masters) * 4 * count
    for step in range(2):
        shard.set_gradient(torch.ones(count))
        optimizer.step()
        use = file.take_use()
        assert (use.read, use.written) == (file.bytes, file.bytes), step
        assert 0 <= use.waited_s <= use.seconds


def test_small_shards_of_a_bucket_are_one_transfer(tmp_path: Path) -> None:
    parts = [ParamShard(f"norm{n}", (7,), (0,), torch.randn(7), frozenset()) for n in range(20)]
    _, home = on_disk(parts, OptimizerSpec(), StateFile(tmp_path), bucket=1 << 20)
    # The values, which the device has, have places in the buffer alone.
    assert home._extents == [[Extent(0, 20 * PAGE, 40 * PAGE)]]


@pytest.mark.parametrize("call", ["preadv", "pwritev"])
def test_a_failing_disk_ends_the_optimizer(call: str, tmp_path: Path) -> None:
    """The descriptor is replaced by one that cannot be read, or not be written: the kernel refuses the first transfer."""
    parts, file = shards(), StateFile(tmp_path)
    optimizer, _ = on_disk(parts, OptimizerSpec(), file)
    give_gradients(parts, 0)
    optimizer.step()
    broken = os.open(f"/proc/self/fd/{file._file}", os.O_RDONLY if call == "pwritev" else os.O_WRONLY)
    os.dup2(broken, file._blocks)
    os.close(broken)
    give_gradients(parts, 1)
    with pytest.raises(StateDiskError, match="bad file descriptor") as caught:
        optimizer.step()
    assert caught.value.facts == {"cause": "state_disk_failed"}
    with pytest.raises(StateDiskError):
        optimizer.step()


def test_a_file_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    parts, file = shards(), StateFile(tmp_path)
    optimizer, _ = on_disk(parts, OptimizerSpec(), file)
    for step in range(2):
        give_gradients(parts, step)
        if step:
            os.ftruncate(file._file, PAGE)
            with pytest.raises(StateDiskError, match="ends too early"):
                optimizer.step()
        else:
            optimizer.step()


#: Values and gradients are allocated before the process joins its cgroup: only what comes after counts.
IN_A_CGROUP = """
import os, sys, torch
from pathlib import Path
from shardyard.strategies.activation_memory.disk_home import DiskHome
from shardyard.strategies.activation_memory.host_optimizer import HostOptimizer
from shardyard.strategies.activation_memory.state_file import StateFile
from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.spec import OptimizerSpec
from shardyard.workers.trainer.optimizer import make_optimizer

def shard_of(count):
    found = ParamShard("w", (count,), (0,), torch.randn(count), frozenset())
    found.tensor.grad = torch.randn(count)
    return found

def steps(shard, home):
    optimizer = HostOptimizer([shard], 1.0, lambda some: make_optimizer(some, OptimizerSpec()), 1 << 20, home)
    for _ in range(2):
        optimizer.step()

where, procs, folder = sys.argv[1:]
shard = shard_of(16 << 20)
steps(shard_of(1), None)  # the first step of any optimizer imports much
Path(procs).write_text(str(os.getpid()))
steps(shard, DiskHome(StateFile(Path(folder))) if where == "disk" else None)
"""


@pytest.mark.full
@pytest.mark.parametrize(("where", "status"), [("disk", 0), ("memory", -signal.SIGKILL)])
def test_host_memory_is_that_of_the_buffers(where: str, status: int, tmp_path: Path) -> None:
    """128 MiB of moments in a cgroup of 64 MiB. In memory the kernel kills the process."""
    done = run_within(64 << 20, IN_A_CGROUP, where, tmp_path)
    assert done.returncode == status, done.stderr


def test_nothing_to_move_needs_no_disk(tmp_path: Path) -> None:
    parts, file = shards(), StateFile(tmp_path)
    optimizer, home = on_disk(parts, OptimizerSpec(), file, 1e-9)
    give_gradients(parts, 0)
    optimizer.step()
    assert (file.bytes, home.buffer_bytes, file.take_use().read) == (0, 0, 0)
