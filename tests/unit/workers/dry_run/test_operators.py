"""Reads and writes as schemas and names of collectives say."""

import pytest
import torch

from shardyard.workers.dry_run.operators import accesses, operator_of

A, B, C = (torch.zeros(2) for _ in range(3))


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "reads", "writes"),
    [
        (torch.ops.aten.add.Tensor, (A, B), {}, [A, B], []),
        (torch.ops.aten.add_.Tensor, (A, B), {}, [B], [A]),
        (torch.ops.aten.add.out, (A, B), {"out": C}, [A, B], [C]),
        (torch.ops.aten.copy_.default, (A, B), {"non_blocking": True}, [B], [A]),
        (torch.ops.aten._foreach_add_.List, ([A, B], [C, C]), {}, [C, C], [A, B]),
        (torch.ops.c10d.allreduce_.default, ([A],), {}, [A], [A]),
        (torch.ops.c10d._allgather_base_.default, (A, B), {}, [B], [A]),
        (torch.ops.c10d._reduce_scatter_base_.default, (A, B), {}, [B], [A]),
        (torch.ops.c10d.send.default, ([A],), {}, [A], []),
        (torch.ops.c10d.recv_.default, ([A],), {}, [], [A]),
        (torch.ops._c10d_functional.all_reduce.default, (A, "sum", "0"), {}, [A], []),
        (torch.ops._c10d_functional.all_reduce_.default, (A, "sum", "0"), {}, [A], [A]),
        (torch.ops._dtensor.shard_dim_alltoall.default, (A, 0, 1, "0"), {}, [A], []),
    ],
    ids=str,
)
def test_reads_and_writes(
    func: object, args: tuple[object, ...], kwargs: dict[str, object], reads: list[object], writes: list[object]
) -> None:
    found = accesses(operator_of(func), args, kwargs)
    assert [list(map(id, found.reads)), list(map(id, found.writes))] == [list(map(id, reads)), list(map(id, writes))]


def test_views_and_questions_touch_nothing_and_empty_tensors_are_not_written() -> None:
    for func in (torch.ops.aten.view.default, torch.ops.aten.detach.default, torch.ops.prim.device.default):
        assert operator_of(func).touches_nothing
    for func in (torch.ops.aten.add_.Tensor, torch.ops.aten.equal.default, torch.ops.c10d.barrier.default):
        assert not operator_of(func).touches_nothing
    assert operator_of(torch.ops._dtensor.shard_dim_alltoall.default).is_collective
    assert operator_of(torch.ops.aten.empty.memory_format).is_empty
    assert all(operator_of(func.default).read_by_host for func in (torch.ops.aten.nonzero, torch.ops.aten.bincount))


def test_arguments_are_found_by_place_or_name() -> None:
    copy = operator_of(torch.ops.aten.copy_.default)
    assert copy.argument("non_blocking", (A, B, True), {}) is copy.argument(
        "non_blocking", (A, B), {"non_blocking": True}
    )
    assert copy.argument("non_blocking", (A, B), {}) is None
