"""Replicas share their snapshots: each slice is stored once, and a repair still continues with the same bits."""

from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest
from harness.models import LLAMA, MIXTURE
from harness.ranks import group, spawn, train

from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.spec import Run, TrainSpec

#: The first trainers end after this step; the next ones restore its snapshots.
BREAK = 3


def repaired(rank: int, world: int, port: int, orders: str) -> dict[str, Any]:
    """Train up to `BREAK`, then continue with new trainers from the snapshots. Returns losses, and the slices that are stored."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.snapshot import header, shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.heartbeat import Heartbeat
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    run, device, fds = Run.model_validate_json(orders), group(rank, world, port), shared_memory.allocate()
    losses: dict[int, float] = {}
    stored: list[Any] = []

    def note(kind: str, data: dict[str, Any]) -> None:
        if kind == "step" and "loss" in data:
            losses[data["step"]] = data["loss"]

    for memory, last in ((SnapshotMemory(fds), BREAK), (SnapshotMemory(fds, BREAK), run.train.steps)):
        heartbeat = Heartbeat()
        asked = lambda last=last, at=heartbeat: StopRequest.STOP if at.step == last else StopRequest.NO  # noqa: E731
        built = build(run, make_mesh(run.train.layout, device))
        assemble(built, note, Instruments(asked, heartbeat), memory).run()
        fd = header.segment_of(fds, last)
        found = None if fd is None else header.read(fd)
        assert found is not None
        stored = [(one.name, one.offset, one.size, one.elements, one.shape) for one in found.slices]
    shards = [(p.name, p.offset, p.tensor.numpy()) for p in built.parallel.data.shards]
    return {"losses": losses, "stored": stored, "shards": shards}


#: Name → layout and changes of the spec. `core.txt` names those of `make test`.
LAYOUTS: dict[str, Any] = {
    "replicas": ({"data": 2, "zero": 0}, {}),
    "groups": ({"data": 4, "shard": 2, "zero": 3}, {}),
    "offloaded": ({"data": 2, "zero": 0}, {"offload": {"optimizer": 0.5}}),
    "disk": ({"data": 2, "zero": 0}, {"offload": {"optimizer": 1, "to": "disk"}}),
    "three": ({"data": 3, "zero": 0}, {}),
    "tensor": ({"data": 2, "tensor": 2, "zero": 0}, {}),
    "pipeline": ({"data": 2, "pipeline": 2, "zero": 0}, {}),
    "2bw": ({"data": 2, "pipeline": 2, "schedule": "2bw"}, {}),
    "pipedream": ({"data": 2, "pipeline": 2, "schedule": "pipedream"}, {}),
    "vertical-sync": ({"data": 2, "pipeline": 2, "schedule": "pipedream", "vertical_sync": True}, {}),
    "tied": ({"data": 2, "pipeline": 2, "zero": 0}, {"model": {**LLAMA, "tied": True}}),
    "ring": ({"data": 2, "context": 2, "zero": 0}, {}),
    "experts": ({"data": 4, "expert": 2, "zero": 0}, {"model": MIXTURE}),
    "experts-in-groups": ({"data": 4, "expert": 2, "shard": 2, "zero": 3}, {"model": MIXTURE}),
    "nothing-shared": ({"data": 2, "zero": 1}, {}),
}


@pytest.mark.parametrize(("layout", "changes"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_repair_from_shared_snapshots_has_the_same_bits(
    layout: Any, changes: Any, tmp_path: Path, make_spec: Any
) -> None:
    spec = make_spec(layout, **changes)
    snapshots = TrainSpec.model_validate({**spec, "snapshot": {"every": 1}})
    run = Run(job="a", train=snapshots, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    ranks = spawn(repaired, snapshots.layout.world_size, run.model_dump_json())
    whole = train(spec, tmp_path, "whole")
    assert [ranks[0]["losses"][step] for step in range(1, spec["steps"] + 1)] == whole["losses"]
    for rank in ranks:
        for name, offset, tensor in rank["shards"]:
            place = tuple(slice(start, start + size) for start, size in zip(offset, tensor.shape, strict=True))
            assert (whole["parameters"][name][place] == tensor).all(), name
    _each_element_is_stored_once(ranks, layout, at_most=2 if "tensor" in layout or "tied" in str(changes) else 1)


def _each_element_is_stored_once(ranks: list[dict[str, Any]], layout: Any, at_most: int) -> None:
    """What tensor ranks, or the ends of a pipeline, hold in common is stored by each of them, and everything else once."""
    names = [sorted(name for name, *_ in rank["stored"]) for rank in ranks]
    if "pipeline" not in layout:
        assert all(name == names[0] for name in names), "each rank names all, for the emergency checkpoint"
    stored, sizes = Counter[str](), {}
    for rank in ranks:
        for name, _, _, elements, shape in rank["stored"]:
            stored[name] += elements
            sizes[name] = shape
    for name, shape in sizes.items():
        assert stored[name] in {prod(shape), at_most * prod(shape)}, name
    each = [sum(elements for *_, elements, _ in rank["stored"]) for rank in ranks]
    assert max(each) < 2 * min(each)
