"""Snapshots: how fast memory is pinned and filled, against the link, and what a step feels of them."""

import os
import time
from collections.abc import Iterator
from statistics import median

from shardyard.strategies.pinned_memory import CudaPinning
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.trainer.callbacks.snapshotting import Snapshotting
from shardyard.workers.trainer.optimizer import optimizer_shards
from shardyard.workers.trainer.restore import SnapshotMemory
from shardyard.workers.trainer.segment_mapping import SegmentMapping
from shardyard.workers.trainer.segment_writer import SegmentWriter
from shardyard.workers.trainer.snapshot_cost import cost_on

from ..checks import Check, Place, Skip
from ..engine import Engine, interleaved, ratios
from ..link import GIB, link
from ..report import Line, measured, ratio

#: Share of the link's rate that a copy of many tensors reaches at least, and what snapshots may cost as the spec promises.
OF_LINK, COST = 0.5, 1.02
#: Blocks are no longer than this many steps.
LONGEST = 40


def checks(at: Place) -> list[Check]:
    return [
        Check("registering memory", lambda: _registering(at)),
        Check("copying", lambda: _copying(at)),
        Check("a step with snapshots over one without", lambda: _felt(at, None)),
        Check("a step with a snapshot each over one without", lambda: _felt(at, 1)),
    ]


def _registering(at: Place) -> Iterator[Line]:
    size = at.sizes.copy_bytes
    (fd, *rest) = shared_memory.allocate()
    try:
        shared_memory.reserve(fd, size)
        began = time.perf_counter()
        mapping = SegmentMapping(fd, size, CudaPinning(at.device) if at.cuda else None)
        mapped = time.perf_counter()
        closed = mapping.close()
        ended = time.perf_counter()
    finally:
        for each in (fd, *rest):
            os.close(each)
    yield measured("error of registering", mapping.error, at_most=0)
    yield measured("registering", (mapped - began) / (size / GIB), "s/GiB")
    yield measured("unregistering", (ended - mapped) / (size / GIB), "s/GiB")
    yield measured("segments that stayed registered", not closed, at_most=0)


def _copying(at: Place) -> Iterator[Line]:
    """The state of a real model, copied while nothing else runs."""
    fds = shared_memory.allocate()
    try:
        with Engine(at, at.sizes.small.spec()) as engine:
            engine.block(1)
            shards = engine.parts.parallel.data.shards
            writer = SegmentWriter(fds, [*shards, *optimizer_shards(shards, engine.parts.optimizer)], at.device)
            writer.allocate()
            took = []
            for step in range(1, 6):
                at.synchronize()
                began = time.perf_counter()
                writer.write(step, {}, writer.ready())
                took.append(time.perf_counter() - began)
            size = writer.bytes / len(fds)
            writer.close()
    finally:
        for fd in fds:
            os.close(fd)
    rate = size / median(took[2:])
    yield measured("first snapshot of a slot, with mapping", max(took[:2]), "s", note=f"{size / GIB:.2f} GiB")
    yield measured("later snapshots", rate / GIB, "GiB/s")
    yield measured("their share of the link", rate / link(at).to_host, "", at_least=OF_LINK if at.cuda else None)


def _felt(at: Place, every: int | None) -> Iterator[Line]:
    """Blocks of the same model with and without, in turn. `every` None: as the engine decides."""
    fds = shared_memory.allocate()
    model = at.sizes.small
    words = "as often as the engine decides" if every is None else "after every step"
    promised = COST if every is None and at.cuda else None
    try:
        with (
            Engine(at, model.spec(snapshot={"every": every}), SnapshotMemory(fds)) as taking,
            Engine(at, model.spec()) as plain,
        ):
            taking.block(cost_on(at.device).steps + 1)  # until the engine has chosen the interval
            for refused in taking.of_kind("incident"):
                if refused["cause"] == "snapshots_off":  # and so it chooses no interval
                    raise Skip(refused["message"])
            pairs = interleaved(at, taking.block, plain.block, lambda: _length(taking))
    finally:
        for fd in fds:
            os.close(fd)
    yield ratio(f"a step with snapshots {words} over one without", ratios(pairs), at_most=promised)


def _length(taking: Engine) -> int:
    """Steps of a block: whole intervals between two snapshots, as the engine has chosen them."""
    (callback,) = (one for one in taking.loop.callbacks.ordered if isinstance(one, Snapshotting))
    every = callback.snapshots._every
    if every is None:
        raise RuntimeError("the engine has not chosen how often it takes snapshots")
    every = min(max(every, 1), LONGEST)
    return -(-taking.at.sizes.steps // every) * every
