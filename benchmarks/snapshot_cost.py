"""What snapshots cost per step: real ranks that take them for a block of steps and then do without for one, again and again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.patience import PATIENCE_S
from harness.ranks import callback_of, group, spawn

from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.spec import Run

#: Steps of a block, or a little fewer: as many as make whole intervals between two snapshots.
BLOCK = 20
#: Steps before the first block: buffers are made, and the snapshots' interval is chosen.
WARM = 20


def shares(train: dict[str, Any], folder: Path, enough_s: float) -> tuple[list[float], list[float]]:
    """Of each two neighbouring blocks, the time with snapshots over the time without; as many as begin within `enough_s`.

    First by rank 0's clock, then by the processor time of all ranks, which what else the machine does disturbs less.
    """
    run = Run(job="cost", train=train, checkpoints=folder / "checkpoints", cache=folder / "cache", device="cpu")
    ranks = spawn(_rank, run.train.layout.world_size, run.model_dump_json(), enough_s, patience_s=enough_s + PATIENCE_S)
    clock = [wall for wall, _ in ranks[0]]
    processors = [sum(worked for _, worked in block) for block in zip(*ranks, strict=True)]
    return _ratios(clock), _ratios(processors)


def _ratios(blocks: list[float]) -> list[float]:
    return [taking / without for taking, without in zip(blocks[0::2], blocks[1::2], strict=True)]


def _rank(rank: int, world: int, port: int, orders: str, enough_s: float) -> list[tuple[float, float]]:
    """Seconds of every block, by the clock and of this rank's processor time; the even ones with snapshots."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.callbacks.snapshotting import Snapshotting
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    run = Run.model_validate_json(orders)
    device = group(rank, world, port, run.device)
    seconds: list[tuple[float, float]] = []
    built = build(run, make_mesh(run.train.layout, device))
    switches: list[Callable[[], StopRequest]] = []

    def asked() -> StopRequest:
        return switches[0]()

    loop = assemble(built, lambda *_: None, Instruments(asked), SnapshotMemory(shared_memory.allocate()))
    switches.append(_switch(callback_of(loop, Snapshotting), seconds, enough_s))
    loop.run()
    return seconds


def _switch(callback: Any, seconds: list[tuple[float, float]], enough_s: float) -> Callable[[], StopRequest]:
    """Asked at each step's start whether to end: turns the snapshots on or off where a block ends."""
    import torch

    from shardyard.workers.trainer.callbacks.snapshotting import Snapshots
    from shardyard.workers.trainer.instruments import Instruments

    taking, none = callback.snapshots, Snapshots((), 0, [], torch.device("cpu"), Instruments())
    done, began = -WARM, _now()

    def asked() -> StopRequest:
        nonlocal done, began
        length = max(BLOCK // (taking._every or 1), 1) * (taking._every or 1)
        if done > 0 and done % length == 0:
            taking.settle()
            ended = _now()
            seconds.append((ended[0] - began[0], ended[1] - began[1]))
            callback.snapshots = taking if len(seconds) % 2 == 0 else none
        if done % length == 0:
            began = _now()
        done += 1
        whole = seconds and len(seconds) % 2 == 0 and done % length == 1
        return StopRequest.STOP if whole and sum(wall for wall, _ in seconds) > enough_s else StopRequest.NO

    return asked


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()
