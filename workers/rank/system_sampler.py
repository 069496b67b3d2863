"""Samples what a rank uses while its trainer lives, and for the first rank of a node what the node uses.

Files are read in a thread, so that a disk that does not answer holds no call to the actor. There is one reading at a time. While the
rank's events are not taken, samples are dropped before anything else is.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ..messages.event import to_json
from ..messages.event_buffer import Spool
from ..messages.rank_event import RankSystemEvent
from ..messages.system_metrics import Rates, Reading
from . import process_tree
from .gpu_use import GpuUse, open_gpu
from .node_use import NodeUse
from .trainer_process import TrainerProcess

#: The second sample follows so soon after the first, because rates need two, and short jobs have no later one.
SECOND_S: Final = 1.0


class SystemSampler:
    """Of one trainer. `gpu`: the rank's GPU, as Ray has it; None on CPUs. `node`: None unless this rank samples the node."""

    def __init__(self, pid: Callable[[], int | None], gpu: str | None, node: NodeUse | None) -> None:
        self._pid, self._gpu_id, self._node = pid, gpu, node
        self._gpu: GpuUse | None = None
        self._opened = False
        self._rank_rates, self._node_rates = Rates(), Rates()

    def sample(self) -> RankSystemEvent:
        """The values now, and rates since the last call."""
        if self._gpu_id is not None and not self._opened:
            self._gpu, self._opened = open_gpu(self._gpu_id), True
        pid = self._pid()
        mine = Reading() if pid is None else process_tree.read(pid)
        if self._gpu is not None:
            gpu = self._gpu.read()
            mine = Reading(mine.values | gpu.values, mine.counters | gpu.counters)
        rank = self._rank_rates.of(mine, time.monotonic())
        if self._node is None:
            return RankSystemEvent(rank=rank, gpu=self._gpu_id)
        node = self._node_rates.of(self._node.read(), time.monotonic())
        return RankSystemEvent(rank=rank, node=node, gpu=self._gpu_id)

    async def follow(self, trainer: TrainerProcess, spool: Spool, every_s: float) -> None:
        """Add samples to the spool until the trainer has ended."""
        wait_s = min(SECOND_S, every_s)
        while not trainer.gone.is_set():
            found = await asyncio.to_thread(self.sample)
            if not spool.half_full and not trainer.gone.is_set():
                spool.add(found.kind, to_json(found))
            try:
                async with asyncio.timeout(wait_s):
                    await trainer.gone.wait()
            except TimeoutError:
                wait_s = every_s
        if self._gpu is not None:
            await asyncio.to_thread(self._gpu.close)


def sampler_of(trainer: TrainerProcess, gpus: list[str], run: Mapping[str, Any], samples_node: bool) -> SystemSampler:
    """The sampler of a trainer. The disk is the one of the run's cache, in the node's data folder."""
    node = NodeUse(Path(str(run.get("cache") or "/"))) if samples_node else None
    return SystemSampler(lambda: trainer.pid, next(iter(gpus), None), node)
