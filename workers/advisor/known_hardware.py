"""Hardware from data sheets and stated assumptions, for a step's time. Imports no torch.

Every number that is not from a data sheet is an assumption, and a constant here. Those that matter can be given, or measured.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...strategies.advisor.hardware import Hardware, Link
from ..gpu_models import GpuModel

#: Share of the peak FLOP/s that a rank reaches in the passes of a model, if communication costs nothing.
MFU: Final = 0.5
#: Share of a link's bandwidth that large messages reach.
REACHED: Final = 0.8
#: Gbit/s of one network card per GPU, as a DGX H100 has.
INTER_GBPS: Final = 400.0
GPUS_PER_NODE: Final = 8
#: Seconds of a message of no bytes, within a node and between nodes.
_INTRA_S: Final = 8e-6
_INTER_S: Final = 20e-6
#: Seconds that a block's kernels take beside their FLOPs, in both passes.
_BLOCK_S: Final = 1e-4
#: Share of a time of computing that hides communication: kernels of NCCL take processors and memory bandwidth from the others.
_HIDDEN: Final = 0.8
#: Bytes/s between a GPU and its host, with an update there.
_HOST: Final = 25e9
#: Bytes/s to a node's disk, an NVMe drive.
_DISK: Final = 3e9

#: Of one core of a CPU: FLOP/s reached in fp32, bytes/s of memory, and of gloo between two processes. To be measured where they matter.
_CORE_FLOPS: Final = 2e10
_CORE_MEMORY: Final = 5e9
_GLOO: Final = Link(1e9, 1e-4)
_CPU_BLOCK_S: Final = 1e-3


@dataclass(frozen=True)
class Given:
    """What a user says of the hardware; None: as known or assumed. Gbit/s are a link's own, in each direction.

    `host_memory`: bytes of a node with GPUs; None: not known.
    """

    peak_tflops: float | None = None
    mfu: float | None = None
    intra_gbps: float | None = None
    inter_gbps: float | None = None
    per_node: int | None = None
    host_memory: int | None = None


@dataclass(frozen=True)
class Measured:
    """What a machine was measured to do. `intra`: None where fewer than two ranks were there."""

    flops: float
    block_s: float
    memory_bandwidth: float
    intra: Link | None = None


def of_gpus(model: GpuModel, precision: str, world: int, given: Given) -> Hardware:
    """The hardware of `world` GPUs. `precision`: of computation; fp8 counts as 16 bits, and fp64 as fp32."""
    half = precision in ("bf16", "fp16", "fp8")
    peak = given.peak_tflops or (model.half_tflops if half else model.single_tflops)
    intra = (given.intra_gbps or 8 * model.link_gbytes_s) * 1e9 / 8
    inter = (given.inter_gbps or INTER_GBPS) * 1e9 / 8
    return Hardware(
        device="cuda",
        flops=peak * 1e12 * (given.mfu or MFU),
        memory=model.memory_bytes,
        memory_bandwidth=REACHED * model.memory_gbytes_s * 1e9,
        host=_HOST,
        ranks_per_node=min(world, given.per_node or GPUS_PER_NODE),
        intra=Link(REACHED * intra, _INTRA_S),
        inter=Link(REACHED * inter, _INTER_S),
        block_s=_BLOCK_S,
        hidden=_HIDDEN,
        host_memory=given.host_memory,
        disk=_DISK,
    )


def of_cpus(cores: int, memory: int | None, world: int, given: Given) -> Hardware:
    """The hardware of `world` ranks on nodes of `cores` cores and `memory` bytes. A rank computes on one core, and shares it if need be.

    Nothing hides gloo's messages: its threads need the cores, too.
    """
    here = min(world, given.per_node or world)
    link = replace(_GLOO, bandwidth=given.intra_gbps * 1e9 / 8) if given.intra_gbps else _GLOO
    between = replace(_GLOO, bandwidth=given.inter_gbps * 1e9 / 8) if given.inter_gbps else _GLOO
    return Hardware(
        device="cpu",
        flops=given.peak_tflops * 1e12 * (given.mfu or MFU) if given.peak_tflops else _CORE_FLOPS,
        memory=memory,
        memory_bandwidth=_CORE_MEMORY,
        host=_CORE_MEMORY,
        ranks_per_node=here,
        intra=link,
        inter=between,
        block_s=_CPU_BLOCK_S,
        hidden=0.0,
        cores=min(1.0, cores / here),
        disk=_DISK,
    )


def as_measured(hardware: Hardware, found: Measured, given: Given) -> Hardware:
    """`hardware` with what was measured, but for what the user says."""
    flops = hardware.flops if given.peak_tflops or given.mfu else found.flops
    intra = hardware.intra if given.intra_gbps or found.intra is None else found.intra
    return replace(hardware, flops=flops, block_s=found.block_s, memory_bandwidth=found.memory_bandwidth, intra=intra)


def link_of(report: Mapping[str, Any]) -> Link:
    """The link between the ranks of a report of timed collectives, of two sizes or more: from the all-reduces over all of them.

    The largest size gives the bandwidth. What the smallest one takes beside its bytes is the latency of its ⌈log2 n⌉ hops.
    """
    speeds = [one for one in report["speeds"] if (one["axis"], one["collective"]) == ("world", "all_reduce")]
    small, large = (pick(speeds, key=lambda one: one["bytes"]) for pick in (min, max))
    bandwidth: float = large["bus_bandwidth"]
    sent = small["bus_bandwidth"] * small["seconds"]
    return Link(bandwidth, max(0.0, small["seconds"] - sent / bandwidth) / math.ceil(math.log2(large["ranks"])))
