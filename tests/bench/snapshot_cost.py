"""What snapshots cost per step: real ranks that take them for a block of steps and then do without for one, again and again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.ranks import group, spawn

from shardyard.workers.ending import Ending
from shardyard.workers.spec import Run

#: Steps of a block, or a little fewer: as many as make whole intervals between two snapshots.
BLOCK = 20
#: Steps before the first block: buffers are made, and the snapshots' interval is chosen.
WARM = 20


def shares(train: dict[str, Any], folder: Path, enough_s: float) -> list[float]:
    """Of each two neighbouring blocks, the time with snapshots over the time without; as many as begin within `enough_s`."""
    run = Run(job="cost", train=train, checkpoints=folder / "checkpoints", cache=folder / "cache", device="cpu")
    blocks = spawn(_rank, run.train.layout.world_size, run.model_dump_json(), enough_s)[0]
    return [taking / without for taking, without in zip(blocks[0::2], blocks[1::2], strict=True)]


def _rank(rank: int, world: int, port: int, orders: str, enough_s: float) -> list[float]:
    """Seconds of every block; the even ones with snapshots."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers import slots
    from shardyard.workers.build import build
    from shardyard.workers.loop import Loop, Memory

    run = Run.model_validate_json(orders)
    device = group(rank, world, port, run.device)
    seconds: list[float] = []
    built = build(run, make_mesh(run.train.layout, device))
    loop = Loop(built, lambda *_: None, lambda: Ending.NO, Memory(slots.make()))
    loop.asked = _switch(loop, seconds, enough_s)
    loop.run()
    return seconds


def _switch(loop: Any, seconds: list[float], enough_s: float) -> Callable[[], Ending]:
    """Asked at each step's start whether to end: turns the snapshots on or off where a block ends."""
    from shardyard.workers.snapshot import Snapshots

    taking, none = loop.snapshots, Snapshots((), 0, [], loop.built.mesh.device)
    done, began = -WARM, time.monotonic()

    def asked() -> Ending:
        nonlocal done, began
        length = max(BLOCK // (taking._every or 1), 1) * (taking._every or 1)
        if done > 0 and done % length == 0:
            seconds.append(time.monotonic() - began)
            taking.settle()
            loop.snapshots = taking if len(seconds) % 2 == 0 else none
        if done % length == 0:
            began = time.monotonic()
        done += 1
        whole = seconds and len(seconds) % 2 == 0 and done % length == 1
        return Ending.STOP if whole and sum(seconds) > enough_s else Ending.NO

    return asked
