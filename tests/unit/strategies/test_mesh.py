"""What a rank does to form the groups of a mesh: a call per axis and a few for pairs in a pipeline, whatever the number of ranks; and which
ranks are in its groups.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.mesh import SERVER, Mesh, make_mesh
from shardyard.strategies.telemetry.comm_counter import axes_of

CPU = torch.device("cpu")

#: Layouts of 512 ranks → groups formed beside the world's.
LAYOUTS: list[tuple[dict[str, Any], int]] = [
    ({"data": 512}, 0),
    ({"tensor": 512}, 1),
    ({"pipeline": 512}, 3),
    ({"context": 512}, 1),
    ({"context": 512, "ulysses": 8}, 3),
    ({"data": 512, "expert": 512, "zero": 1}, 1),
    ({"data": 256, "pipeline": 2}, 2),
    ({"data": 512, "zero": 3, "shard": 8}, 2),
    ({"data": 8, "tensor": 8, "pipeline": 8}, 5),
    ({"data": 8, "tensor": 8, "pipeline": 8, "schedule": "interleaved"}, 5),
    ({"data": 64, "tensor": 8, "zero": 1}, 2),
    ({"data": 32, "context": 16}, 1),
    ({"data": 4, "context": 8, "ulysses": 2, "tensor": 4, "pipeline": 4}, 8),
    ({"data": 4, "context": 8, "ulysses": 2, "context_inner": "ring", "tensor": 4, "pipeline": 4}, 8),
    ({"data": 16, "context": 32, "ulysses": 2, "ring_window": 4}, 4),
    ({"data": 64, "expert": 8, "pipeline": 8, "zero": 1}, 6),
    ({"data": 32, "zero": 3, "shard": 8, "tensor": 8, "pipeline": 2}, 5),
    ({"data": 512, "zero": 3, "zero_plus_plus": {"weights": "int8", "secondary": 8, "gradients": "int4"}}, 2),
    ({"data": 64, "zero": 3, "zero_plus_plus": {"secondary": 16, "gradients": "int4", "node": 8}, "tensor": 8}, 5),
    ({"data": 64, "zero": 3, "shard": 32, "zero_plus_plus": {"gradients": "int8", "node": 8}, "pipeline": 8}, 8),
    # Neighbours of a group hold different experts: torch shards theirs over a group of one, which is formed once.
    ({"data": 64, "expert": 8, "zero": 3, "shard": 8, "pipeline": 8}, 8),
]


@contextmanager
def fake_world(rank: int, size: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.fixture
def formed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ranks of each group whose formation this process takes part in. All are on the fake backend: gloo needs a real store."""
    found: list[Any] = []
    given = distributed_c10d._new_group_with_tag

    def noted(ranks: Any, timeout: Any, _: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(ranks)
        return given(ranks, timeout, None, *args, **kwargs)

    monkeypatch.setattr(distributed_c10d, "_new_group_with_tag", noted)
    return found


@pytest.mark.parametrize(("degrees", "groups"), LAYOUTS, ids=str)
def test_one_formation_per_axis_and_two_for_pairs_at_512_ranks(
    degrees: dict[str, Any], groups: int, formed: list[Any]
) -> None:
    layout = Layout.model_validate(degrees)
    assert layout.world_size == 512
    with fake_world(333, 512):
        mesh = make_mesh(layout, CPU)
        assert len(formed) == groups
        assert all(333 in ranks for ranks in formed)
        assert not [name for name, axis in mesh.axes.items() if axis.size == 1 and axis.group is not None]
        assert _ranks(mesh) == _expected(mesh, 333)


def _ranks(mesh: Mesh) -> dict[str, list[int]]:
    return {name: dist.get_process_group_ranks(axis.group) for name, axis in mesh.axes.items() if axis.group}


def _expected(mesh: Mesh, rank: int) -> dict[str, list[int]]:
    """The ranks whose coordinates on what the axis does not divide are this rank's, from the numbering alone."""
    layout = mesh.layout
    tensor, context = layout.tensor, layout.context
    replicas = layout.data * context
    block = rank // (tensor * replicas) * tensor * replicas  # of this rank's pipeline stage
    column, replica = rank % tensor, rank // tensor % replicas
    alike = {
        "replica": lambda r: True,
        "data": lambda r: r % context == replica % context,
        "context": lambda r: r // context == replica // context,
        "ring": lambda r: r // context == replica // context and _place(layout, r)[1] == _place(layout, replica)[1],
        "ulysses": lambda r: r // context == replica // context and _place(layout, r)[0] == _place(layout, replica)[0],
        "expert": lambda r: r // layout.expert == replica // layout.expert,
        "expert_replica": lambda r: r % layout.expert == replica % layout.expert,
    }
    if window := layout.ring_window:
        place = _place(layout, replica)[0]
        alike["inner_ring"] = lambda r: alike["ring"](r) and _place(layout, r)[0] // window == place // window
        alike["outer_ring"] = lambda r: alike["ring"](r) and _place(layout, r)[0] % window == place % window
    if shard := layout.shard:
        alike["shard"] = lambda r: r // shard == replica // shard
        alike["shard_replica"] = lambda r: r % shard == replica % shard
        alike["expert_shard"] = lambda r: alike["expert_replica"](r) and alike["shard"](r)
        alike["expert_shard_replica"] = lambda r: r % max(shard, layout.expert) == replica % max(shard, layout.expert)
    if smaller := layout.zero_plus_plus:
        size, node = smaller.secondary or 1, smaller.gradient_node or 1
        alike["secondary"] = lambda r: r // size == replica // size
        alike["node"] = lambda r: r // node == replica // node
        whole = layout.shard or replicas
        alike["nodes"] = lambda r: r % node == replica % node and r // whole == replica // whole
    found = {
        name: [block + r * tensor + column for r in range(replicas) if same(r)]
        for name, same in alike.items()
        if name in mesh.axes
    }
    found["tensor"] = [rank - column + t for t in range(tensor)]
    found["pipeline"] = [rank - block + p * tensor * replicas for p in range(layout.pipeline)]
    if layout.context > 1:
        del found["data"]  # nothing is sent over it
    return {name: ranks for name, ranks in found.items() if len(ranks) > 1}


def _place(layout: Layout, replica: int) -> tuple[int, int]:
    """A replica's places in its ring and among its Ulysses ranks."""
    index = replica % layout.context
    if layout.context_inner == "ring":
        return index % layout.ring, index // layout.ring
    return index // layout.ulysses, index % layout.ulysses


@pytest.mark.parametrize(("degrees", "groups"), LAYOUTS, ids=str)
def test_a_world_bound_to_a_device_is_split_once_per_axis_and_twice_for_pairs(
    degrees: dict[str, Any], groups: int, formed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL is not here: `split_group` is replaced, and forms this rank's part on the fake backend."""
    splits: list[list[list[int]]] = []

    limit = timedelta(seconds=77)

    def split_group(parent: Any, parts: list[list[int]], timeout: timedelta, group_desc: str, backend: str) -> Any:
        assert parent is dist.group.WORLD and backend == "cuda:nccl" and timeout == limit
        splits.append(parts)
        mine = next(part for part in parts if dist.get_rank() in part)
        return dist.new_group(mine, use_local_synchronization=True, group_desc=group_desc)

    monkeypatch.setattr(dist, "split_group", split_group)
    layout = Layout.model_validate(degrees)
    with fake_world(333, 512):
        assert dist.group.WORLD is not None
        dist.group.WORLD.bound_device_id = torch.device("cuda", 0)
        make_mesh(layout, torch.device("cuda", 0), limit)
        alone = [ranks for ranks in formed if len(ranks) == 1]
        assert len(splits) + len(alone) == groups and len(alone) <= 1
        for parts in splits:
            assert sorted(rank for part in parts for rank in part) == list(range(512))
            assert len(parts[0]) > 1 and len({len(part) for part in parts}) == 1


#: Pipelines of ranks 0, 2, 4, …: layout → the pairs that rank 0 is in, and the formations for pairs.
PIPELINES: list[tuple[dict[str, Any], list[list[int]], int]] = [
    ({"pipeline": 3}, [[0, 2]], 2),
    ({"pipeline": 3, "schedule": "interleaved"}, [[0, 2], [0, 4]], 3),
    ({"pipeline": 4}, [[0, 2], [0, 6]], 2),
    ({"pipeline": 4, "schedule": "interleaved"}, [[0, 2], [0, 6]], 2),
    ({"pipeline": 5, "schedule": "zbv"}, [[0, 2]], 2),
    ({"pipeline": 5, "schedule": "interleaved"}, [[0, 2], [0, 8]], 3),
]


@pytest.mark.parametrize(("degrees", "of_first", "calls"), PIPELINES, ids=str)
def test_neighbours_in_a_pipeline_have_a_group_of_two(
    degrees: dict[str, Any], of_first: list[list[int]], calls: int, formed: list[Any]
) -> None:
    """Both ranks have it under one name, and all ranks form equally many groups, so that later names are the same, too."""
    layout, names = Layout.model_validate({"data": 2, **degrees}), dict[tuple[int, ...], set[str]]()
    for rank in range(layout.world_size):
        formed.clear()
        with fake_world(rank, layout.world_size):
            mesh = make_mesh(layout, CPU)
            found = {other: dist.get_process_group_ranks(group) for other, group in mesh.pairs.items()}
            assert all(ranks == sorted([rank, other]) for other, ranks in found.items())
            assert {rank - 2, rank + 2} & set(range(layout.world_size)) <= found.keys()
            assert len(formed) == 2 + calls  # and the axes of replicas and of the pipeline
            if rank == 0:
                assert sorted(found.values()) == of_first
            for group in (*mesh.pairs.values(), mesh.group("pipeline"), mesh.group("replica")):
                names.setdefault(tuple(dist.get_process_group_ranks(group)), set()).add(group.group_name)
            assert set(axes_of(mesh).values()) == {"data", "pipeline"}
    assert [ranks for ranks, several in names.items() if len(several) > 1] == []


NAMED = ("data", "replica", "expert", "context", "pipeline")


def test_axes_of_the_whole_world_share_its_group_only_if_they_are_of_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = [
        {"data": 8, "expert": 8, "zero": 1},
        {"context": 8, "ulysses": 2},
        {"pipeline": 8, "schedule": "pipedream"},
    ]
    worlds = []
    for backend in ("nccl", "gloo"):
        monkeypatch.setattr(dist, "get_backend", lambda *_, backend=backend: backend)
        for degrees in layouts:
            with fake_world(3, 8):
                mesh = make_mesh(Layout.model_validate(degrees), CPU)
                whole = {axis for axis in NAMED if mesh.size(axis) == 8}
                shared = {axis for axis in whole if mesh.group(axis) is dist.group.WORLD}
                worlds.append((whole, shared, len(mesh.pairs)))
    assert worlds == [
        ({"data", "replica", "expert"}, {"data", "replica"}, 0),
        ({"replica", "context"}, {"replica"}, 0),
        ({"pipeline"}, set(), 2),
        ({"data", "replica", "expert"}, {"data", "replica", "expert"}, 0),
        ({"replica", "context"}, {"replica", "context"}, 0),
        ({"pipeline"}, {"pipeline"}, 0),
    ]


def test_several_grids_are_the_innermost_replicas(formed: list[Any]) -> None:
    layout = Layout.model_validate({"data": 16, "tensor": {"mode": "2.5d", "shape": [4, 4, 2]}})
    with fake_world(333, 512):  # 320 is the first rank of its tensor group
        mesh = make_mesh(layout, CPU)
        axes = ("data", "tensor_depth", "tensor_row", "tensor_column", "replica")
        assert [mesh.index(axis) for axis in axes] == [10, 0, 3, 1, 20]
        ranks = _ranks(mesh)
        assert ranks["replica"] == list(range(13, 512, 16))
        assert ranks["tensor_row"] == [321, 325, 329, 333]
        assert ranks["tensor_column"] == [332, 333, 334, 335]
        assert len(formed) == 4, (
            "and the tensor group; over the depth gradients alone are sent, with those of other replicas"
        )


def test_the_ranks_of_a_cube_differ_in_three_places(formed: list[Any]) -> None:
    layout = Layout.model_validate({"data": 8, "tensor": {"mode": "3d", "shape": [4, 4, 4]}})
    with fake_world(333, 512):  # 320 is the first rank of its tensor group
        mesh = make_mesh(layout, CPU)
        axes = ("data", "tensor_depth", "tensor_row", "tensor_column", "replica")
        assert [mesh.index(axis) for axis in axes] == [5, 0, 3, 1, 5]
        ranks = _ranks(mesh)
        assert ranks["replica"] == ranks["data"] == list(range(13, 512, 64))
        assert ranks["tensor_depth"] == [333, 349, 365, 381]
        assert ranks["tensor_row"] == [321, 325, 329, 333]
        assert ranks["tensor_column"] == [332, 333, 334, 335]
        assert len(formed) == 5
        assert mesh.tensor_axes == ("tensor_depth", "tensor_row", "tensor_column")


def test_an_axis_of_one_rank_has_no_group() -> None:
    with fake_world(0, 4):
        mesh = make_mesh(Layout(data=4, zero=1), CPU)
        assert (mesh.size("tensor"), mesh.index("tensor"), mesh.part) == (1, 0, 0)
        with pytest.raises(ValueError, match=r"the tensor axis of data 4 .ZeRO-1. has no process group"):
            mesh.group("tensor")


def test_a_layout_of_another_size_is_an_error() -> None:
    with fake_world(0, 4), pytest.raises(ValueError, match="needs 2 ranks, but the process group has 4"):
        make_mesh(Layout(data=2), CPU)


SERVED = Layout.model_validate({"data": 2, "parameter_server": {"servers": 2}})


def test_workers_have_a_group_and_a_server_is_alone_but_for_the_axis_of_all() -> None:
    with fake_world(1, 4):
        worker = make_mesh(SERVED, CPU)
        assert (worker.serves, worker.size("data"), worker.index("data"), worker.part) == (False, 2, 1, 0)
        assert dist.get_process_group_ranks(worker.group("replica")) == [0, 1]
        assert (worker.size(SERVER), worker.index(SERVER)) == (4, 1)
    with fake_world(3, 4):
        server = make_mesh(SERVED, CPU)
        assert (server.serves, server.size("data"), server.index("replica"), server.part) == (True, 1, 0, 1)
        with pytest.raises(ValueError, match="the replica axis of data 2, 2 parameter servers has no process group"):
            server.group("replica")


def test_parameter_servers_are_refused_on_gpus() -> None:
    with fake_world(0, 4), pytest.raises(Refusal, match="Run it on CPUs") as caught:
        make_mesh(SERVED, torch.device("cuda", 0))
    assert caught.value.field == "layout.parameter_server"
