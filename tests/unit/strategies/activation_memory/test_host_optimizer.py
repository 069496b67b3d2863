"""An optimizer on the host makes the same bits as one on the device, in any buckets, and no buffer is larger than a bucket."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from shardyard.strategies.activation_memory.host_optimizer import STRIDE, HostOptimizer, pick
from shardyard.strategies.param_shard import DeviceSide, ParamShard
from shardyard.workers.spec import OptimizerSpec
from shardyard.workers.trainer.optimizer import make_optimizer, optimizer_shards, set_updates_done, updates_done

SHAPES = {"embed": (3, 5001), "norm": (7,), "weight": (9, 11), "last": (2, STRIDE)}


def shards(dtype: torch.dtype = torch.float32) -> list[ParamShard]:
    generator = torch.Generator().manual_seed(0)
    return [
        ParamShard(name, shape, (0,) * len(shape), torch.randn(shape, generator=generator, dtype=dtype), frozenset())
        for name, shape in SHAPES.items()
    ]


def give_gradients(parts: Sequence[ParamShard], step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for shard in parts:
        shard.tensor.grad = torch.randn(shard.tensor.shape, generator=generator, dtype=shard.tensor.dtype)
    if step == 2:
        parts[1].tensor.grad = None


def on_host(parts: Sequence[ParamShard], spec: OptimizerSpec, share: float = 1.0, bucket: int = 4 * STRIDE) -> Any:
    return HostOptimizer(parts, share, lambda some: make_optimizer(some, spec), bucket)


def state_of(parts: Sequence[ParamShard], optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [shard.tensor for shard in (*parts, *optimizer_shards(parts, optimizer))]


def assert_same(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize("bucket", [4 * STRIDE, 1 << 20])
def test_the_same_bits_as_without_offload(name: str, share: float, bucket: int) -> None:
    spec = OptimizerSpec(name=name, lr=0.1, weight_decay=0.1)
    plain, moved = shards(), shards()
    expected, found = make_optimizer(plain, spec), on_host(moved, spec, share, bucket)
    for step in range(4):
        for parts, optimizer in ((plain, expected), (moved, found)):
            give_gradients(parts, step)
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
            optimizer.step()
        assert_same(state_of(moved, found), state_of(plain, expected))
    assert updates_done(found) == updates_done(expected)


def assert_restored_state_is_used(moved: Callable[[Sequence[ParamShard], OptimizerSpec], Any]) -> None:
    """`moved` makes the optimizer elsewhere: after its state was set from another's, both make the same step."""
    spec, first, second = OptimizerSpec(lr=0.1), shards(), shards()
    expected, found = make_optimizer(first, spec), moved(second, spec)
    for optimizer, parts in ((expected, first), (found, second)):
        give_gradients(parts, 0)
        optimizer.step()
    give_gradients(first, 1)
    expected.step()
    for mine, theirs in zip(state_of(second, found), state_of(first, expected), strict=True):
        mine.copy_(theirs)
    set_updates_done(found, 2)
    for optimizer, parts in ((expected, first), (found, second)):
        give_gradients(parts, 3)
        optimizer.step()
    assert_same(state_of(second, found), state_of(first, expected))


def test_ranks_with_unequal_parts_choose_the_same() -> None:
    """Of a vocabulary of 257 one rank has a row more, or all that another has none of, and so with a parameter of few rows."""

    def parts(rows: int, third: int) -> list[ParamShard]:
        shapes = {"embed": ((257, 8), rows), "scale": ((), 1), "narrow": ((2, 8), third), "norm": ((8,), 8)}
        return [
            ParamShard(name, shape, (0,) * len(shape), torch.zeros(held), frozenset())
            for name, (shape, held) in shapes.items()
        ]

    ranks = [parts(129 * 8, 8), parts(128 * 8, 8), parts(0, 8), parts(129 * 8, 0)]
    for share in (0.02, 0.5, 0.99, 1):
        picks = [{some[at].name for at in pick(some, share)} for some in ranks]
        assert all(picked == picks[0] for picked in picks)
        for some in ranks:
            found = on_host(some, OptimizerSpec(), share)
            assert all(tensor.numel() for group in found.param_groups for tensor in group["params"])
    assert {some[at].name for some in [parts(129 * 8, 8)] for at in pick(some, 1)} == {
        "embed",
        "scale",
        "narrow",
        "norm",
    }


def test_restored_state_is_used_by_the_next_step() -> None:
    assert_restored_state_is_used(on_host)


def test_buffers_are_bounded_and_stay() -> None:
    parts = shards()
    optimizer = on_host(parts, OptimizerSpec())
    buffers = [*optimizer._gradients, *optimizer._values]
    assert [buffer.nbytes for buffer in buffers] == [4 * STRIDE] * 4
    places = [buffer.data_ptr() for buffer in buffers]
    for step in range(2):
        give_gradients(parts, step)
        optimizer.step()
    assert [buffer.data_ptr() for buffer in (*optimizer._gradients, *optimizer._values)] == places


def test_memory_that_is_not_in_one_piece_is_one_part() -> None:
    spec = OptimizerSpec(lr=0.1)
    given, gradient = torch.randn(4, 2 * STRIDE), torch.randn(4, 2 * STRIDE)
    parts = [ParamShard("w", (2 * STRIDE, 4), (0, 0), given.clone().t(), frozenset()) for _ in range(2)]
    for shard, optimizer in ((parts[0], make_optimizer(parts[:1], spec)), (parts[1], on_host(parts[1:], spec))):
        shard.tensor.grad = gradient.clone().t()
        optimizer.step()
    assert torch.equal(parts[0].tensor, parts[1].tensor)


def test_nothing_to_move_is_the_optimizer_itself() -> None:
    parts = shards()
    optimizer = on_host(parts, OptimizerSpec(), 1e-9)
    give_gradients(parts, 0)
    before = parts[0].tensor.clone()
    optimizer.step()
    assert not torch.equal(parts[0].tensor, before)


@pytest.mark.parametrize(("name", "updates"), [("adamw", 2), ("sgd", 0)])
def test_a_rank_without_shards_counts_its_updates(name: str, updates: int) -> None:
    """As where ZeRO shards fewer rows than there are ranks."""
    optimizer = on_host([], OptimizerSpec.model_validate({"name": name}))
    optimizer.step()
    optimizer.step()
    assert updates_done(optimizer) == updates


@pytest.mark.parametrize("bucket", [4 * STRIDE, 1 << 20])
def test_masters_on_the_host_send_rounded_values(bucket: int) -> None:
    spec = OptimizerSpec(lr=0.1, weight_decay=0.1)
    plain = shards()
    moved = [replace(shard, on_device=DeviceSide(torch.zeros_like(shard.tensor).bfloat16())) for shard in shards()]
    expected, found = make_optimizer(plain, spec), on_host(moved, spec, 1.0, bucket)
    for step in range(3):
        give_gradients(plain, step)
        expected.step()
        for shard, other in zip(moved, plain, strict=True):
            assert shard.tensor.grad is None
            shard.set_gradient(other.gradient)
        found.step()
        assert_same(state_of(moved, found), state_of(plain, expected))
        for shard in moved:
            assert shard.on_device is not None and torch.equal(shard.on_device.value, shard.tensor.bfloat16())
            shard.on_device.value.zero_()
            shard.publish()  # the step has sent them
            assert not shard.on_device.value.any()
            shard.publish()  # set from elsewhere, as when state is restored
            assert torch.equal(shard.on_device.value, shard.tensor.bfloat16())
