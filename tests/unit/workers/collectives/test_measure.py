"""Collectives over real groups of gloo: what is timed moves what it says, and each pair of ends is measured once."""

import json
import subprocess
import sys
from itertools import combinations

import pytest
import torch
import torch.distributed as dist
from harness.ranks import group, spawn

from shardyard.workers.collectives import measure
from shardyard.workers.collectives.measure import ends, rounds
from shardyard.workers.collectives.report import COLLECTIVES


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_every_pair_meets_once_and_no_end_twice_in_a_round(count: int) -> None:
    played = list(rounds(range(count)))
    assert sorted(pair for each in played for pair in each) == list(combinations(range(count), 2))
    assert all(len({end for pair in each for end in pair}) == 2 * len(each) for each in played)


def test_links_are_between_nodes_where_there_are_several() -> None:
    assert ends(["a", "a", "b", "b", "a", "c"]) == [0, 2, 5]
    assert ends(["a", "a", "a"]) == [0, 1, 2]


def values(rank: int, world: int, port: int) -> dict[str, list[float]]:
    """What each collective leaves on a rank, of float32 elements that are all rank + 1; what is received beside them begins as zeros."""
    device = group(rank, world, port)
    whole = dist.group.WORLD
    assert whole is not None
    span = measure._Span(whole, device)
    found = {}
    zeros, zeros_like = torch.zeros, torch.zeros_like
    for collective in COLLECTIVES:
        made: list[torch.Tensor] = []

        def filled(*shape: int, made: list[torch.Tensor] = made, **more: object) -> torch.Tensor:
            made.append(zeros(*shape, **more).fill_(rank + 1))  # type: ignore[call-overload]
            return made[-1]

        def noted(*like: torch.Tensor, made: list[torch.Tensor] = made, **_more: object) -> torch.Tensor:
            made.append(zeros_like(*like))
            return made[-1]

        torch.zeros, torch.zeros_like = filled, noted
        try:
            operation = measure._operation(span, collective, 2 * world)
        finally:
            torch.zeros, torch.zeros_like = zeros, zeros_like
        operation()
        found[collective] = [float(one.sum()) for one in made]
    return found


def test_what_is_timed_is_what_its_name_says() -> None:
    first, second = spawn(values, 2)
    whole = 4.0  # elements, of which a rank's share is half
    assert first["broadcast"][0] == second["broadcast"][0] == 1 * whole
    assert first["reduce"][0] == 3 * whole
    assert first["all_reduce"][0] == second["all_reduce"][0] == 3 * whole
    assert first["reduce_scatter"][1] == second["reduce_scatter"][1] == 3 * whole / 2
    assert first["all_gather"][0] == second["all_gather"][0] == 1 * 2 + 2 * 2
    assert first["all_to_all"][2] == second["all_to_all"][2] == 1 * 2 + 2 * 2
    assert (first["send_recv"][2], second["send_recv"][2]) == (2 * whole, 1 * whole)


@pytest.mark.full
def test_ranks_under_torchrun_print_one_report() -> None:
    layout = json.dumps({"data": 2, "tensor": 2})
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--standalone"]
    asked = ["-m", "shardyard.workers.collectives", "--layout", layout, "--sizes", "4096,65536", "--json"]
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=300, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found = json.loads(line)
    axes = {(one["axis"], one["ranks"]) for one in found["speeds"]}
    assert axes == {("world", 4), ("replica", 2), ("tensor", 2)}
    assert len(found["speeds"]) == 3 * 2 * len(COLLECTIVES)
    assert all(one["seconds"] > 0 and one["bus_bandwidth"] > 0 for one in found["speeds"])
    assert sorted(tuple(link["ranks"]) for link in found["links"]) == list(combinations(range(4), 2))


@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ({"data": 2, "parameter_server": {"servers": 2}}, ["world"]),
        ({"data": 2, "tensor": 2}, ["world", "replica", "tensor"]),
        ({"tensor": {"mode": "2d", "shape": [2, 2]}}, ["world", "tensor_row", "tensor_column"]),
        ({"context": 4, "ulysses": 2}, ["world", "ulysses", "ring"]),
        ({"context": 4, "ring_window": 2}, ["world", "inner_ring", "outer_ring"]),
        ({"data": 4, "expert": 2}, ["world", "expert_replica", "expert"]),
    ],
    ids=["servers", "axes", "grid", "hybrid", "double-ring", "experts"],
)
def test_every_rank_times_the_same_groups(layout: dict[str, object], axes: list[str]) -> None:
    """A parameter server is in no group but the world's. An axis of all ranks is the world's, too."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.collectives.measure import groups_of

    for rank in range(4):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        try:
            assert list(groups_of(make_mesh(Layout.model_validate(layout), torch.device("cpu")))) == axes
        finally:
            dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo,cuda:gloo"])
def test_the_backend_is_that_of_the_device_alone(backend: str) -> None:
    """Groups on GPUs have two: gloo for what is on the host."""
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.group.WORLD is not None
        assert measure._backend(dist.group.WORLD, torch.device("cpu")) == "gloo"
    finally:
        dist.destroy_process_group()
