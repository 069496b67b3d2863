"""What a rank holds in host memory: offloaded state and activations, and snapshots. Imports no torch."""

from collections.abc import Mapping, Sequence

from ..memory_options import Offload
from .block_memory import block_bytes
from .estimate import Setting
from .moved_state import in_memory, parameters_in_memory
from .rank_parameters import Rank, rank_at
from .snapshots import SNAPSHOTS, fullest_bytes
from .stage_balance import stage_blocks


def most_on_host(rank: Rank, ranks: Sequence[Rank]) -> dict[str, int]:
    """Bytes in host memory by what they are for: of `rank`, the fullest of `ranks`; on GPUs of the one that has most there."""
    own, setting = host_bytes(rank), rank.setting
    if setting.device == "cpu" or setting.memory_options.offload == Offload():
        return own
    return max((own, *map(host_bytes, ranks)), key=_needed)


def least_on_host(setting: Setting) -> int:
    """A lower bound of what a plan for GPUs needs in host memory, in a fraction of its time: what the first rank of a pipeline has."""
    blocks = [len(part) for part in stage_blocks(setting.layout, setting.decoder.costs)]
    return _needed(host_bytes(rank_at(setting, 0, blocks)))


def host_bytes(rank: Rank) -> dict[str, int]:
    """Bytes in host memory by what they are for."""
    setting, offload = rank.setting, rank.setting.memory_options.offload
    own = rank.own
    found = {}
    if offload.parameters:
        modules = rank.blocks + 1
        found["parameters"] = parameters_in_memory(setting, own, rank.pinned, modules, rank.module_shard)
    if offload.optimizer or (offload.parameters and offload.to == "disk"):
        found["optimizer"] = in_memory(setting, own)
    if offload.activations:
        found["activations"] = round(setting.tokens * largest_block_bytes(setting) * _copied_passes(rank))
    if setting.snapshots:
        found[SNAPSHOTS] = fullest_bytes(setting, rank.kept, rank.largest, rank.place)
    return found


def largest_block_bytes(setting: Setting) -> float:
    """Bytes per token of the activations of the block that keeps most. With `recompute.every` some keep all."""
    recompute = setting.memory_options.recompute
    again = block_bytes(setting, recompute.mode)
    return again if recompute.every == 1 else max(again, block_bytes(setting, "none"))


def _needed(host: Mapping[str, int]) -> int:
    """Bytes that the run cannot do without: all but snapshots."""
    return sum(held for what, held in host.items() if what != SNAPSHOTS)


def _copied_passes(rank: Rank) -> float:
    """The most blocks whose activations have been on the host at once: each stage has memory of its own for them (`host_pool.py`)."""
    apart = (
        [blocks * (number == at) for at, blocks in enumerate(rank.in_stages)] for number in range(len(rank.in_stages))
    )
    return sum(map(rank.in_flight, apart))
