"""Times the collectives of a gang's own process groups before it trains, so that a slow node or link is known by name.

One size per collective: of a hundred megabytes the transfer would take most of the time, of a kilobyte only the latency would count.
"""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import torch.distributed as dist

from ...strategies.mesh import Mesh
from ..collectives.measure import groups_of, measured
from ..messages.event import PreflightEvent, to_json
from ..messages.training_events import CollectiveSpeed, SlowNetwork
from .event_outbox import EmitEvent

#: Bytes of each collective, by device.
_BYTES: Final[Mapping[str, int]] = MappingProxyType({"cpu": 1 << 20, "cuda": 64 << 20})


def preflight(mesh: Mesh, emit: EmitEvent) -> None:
    """Time them; rank 0 emits the result. Collective over the world. A world of one rank has none."""
    if dist.get_world_size() == 1:
        return
    began = time.perf_counter()
    report = measured(groups_of(mesh), [_BYTES[mesh.device.type]], mesh.device)
    speeds = (
        CollectiveSpeed(
            axis=one.axis,
            collective=one.collective,
            ranks=one.ranks,
            bytes=one.bytes,
            seconds=one.median_s,
            bus_bandwidth=one.bus_bandwidth,
        )
        for one in report.speeds
    )
    slow = (SlowNetwork(rank=one.rank, message=one.message) for one in report.findings())
    if dist.get_rank() == 0:
        event = PreflightEvent(
            backend=report.backend,
            seconds=time.perf_counter() - began,
            speeds=tuple(speeds),
            slow=tuple(slow),
        )
        emit(event.kind, to_json(event))
