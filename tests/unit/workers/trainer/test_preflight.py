"""A pre-flight over real groups of gloo: every group once, by rank 0, before anything else."""

from typing import Any

import pytest
from harness.ranks import group, spawn

from shardyard.workers.collectives.report import COLLECTIVES
from shardyard.workers.messages.event import PreflightEvent, read
from shardyard.workers.messages.event_text import format_preflight

Emitted = list[tuple[str, dict[str, Any]]]


def emitted(rank: int, world: int, port: int, layout: dict[str, int]) -> Emitted:
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.preflight import preflight

    events: Emitted = []
    mesh = make_mesh(Layout.model_validate(layout), group(rank, world, port))
    preflight(mesh, lambda kind, data: events.append((kind, data)))
    return events


def test_every_group_is_timed_and_rank_0_reports() -> None:
    first, *others = spawn(emitted, 4, {"data": 2, "tensor": 2})
    assert others == [[], [], []]
    ((kind, data),) = first
    event = read(PreflightEvent, data)
    assert (kind, event.backend) == ("preflight", "gloo")
    groups = {(one.axis, one.ranks) for one in event.speeds}
    assert groups == {("world", 4), ("replica", 2), ("tensor", 2)}
    assert len(event.speeds) == len(groups) * len(COLLECTIVES)
    assert all(one.bytes == 1 << 20 and one.bus_bandwidth > 0 for one in event.speeds)
    assert 0 < max(one.seconds for one in event.speeds) < event.seconds


def test_a_rank_alone_has_no_collectives() -> None:
    assert spawn(emitted, 1, {}) == [[]]


@pytest.mark.parametrize("slow", [[], [{"rank": 1, "message": "Node b is slow."}]])
def test_it_is_one_line(slow: list[dict[str, Any]]) -> None:
    speed = {"axis": "world", "collective": "all_reduce", "ranks": 4, "bytes": 4, "seconds": 0.1, "bus_bandwidth": 2e9}
    line = format_preflight({"seconds": 1.25, "speeds": [speed, speed | {"collective": "reduce"}], "slow": slow})
    assert line.startswith("pre-flight in 1.2 s: all-reduce 2 GB/s over world (4 ranks).")
    assert line.endswith("Node b is slow.") == bool(slow)
