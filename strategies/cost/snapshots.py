"""Bytes of host memory that snapshots take, by formula, per rank and per node. Imports no torch.

A snapshot holds what a rank keeps of the state: each value of its shard, and the optimizer's moments of it, (1 + moments)·m bytes with m
of a kept value (4 in mixed precision). Of what several replicas hold, one replica keeps each tensor, spread evenly over them
(`workers/trainer/snapshot_shares.py`). So with AdamW it is 12Ψ/N for all stages, also where sharding groups of fewer than N ranks
hold the state several times. Each rank has two segments, so 24Ψ/N. With several nodes, each node also holds as many bytes of
replicas as its peer's ranks have segments. With parameter servers only they have tensors in their snapshots. The facts beside
the tensors, about a megabyte per rank, are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..delayed_rules import versions_of
from . import parameter_server
from .estimate import Formula, Setting, Unknown
from .memory import Answer
from .model_shape import Weight

#: Segments per rank: one is written while the other is complete (`workers/snapshot/shared_memory.py`).
SEGMENTS: Final = 2
#: Their name among what is planned in host memory. A lack of it costs the snapshots and not the run, so it refuses no job.
SNAPSHOTS: Final = "snapshots"


@dataclass(frozen=True)
class SnapshotMemory:
    """`rank`: least and most bytes of a rank's own segments. `node`: least and most of a node, with the replicas that it holds."""

    rank: Answer
    node: Answer


def snapshot_memory(setting: Setting, ranks_per_node: int) -> SnapshotMemory:
    """What snapshots take where ranks fill their nodes one after the other, in the order of their numbers."""
    if setting.tied_ends:
        unknown = Unknown("The two ends of a pipeline share the tied embedding.")
        return SnapshotMemory(unknown, unknown)
    ranks = rank_bytes(setting)
    nodes = [sum(ranks[first : first + ranks_per_node]) for first in range(0, len(ranks), ranks_per_node)]
    held = [own + nodes[number - 1] for number, own in enumerate(nodes)] if len(nodes) > 1 else nodes
    words = f"{SEGMENTS} × {bytes_per_element(setting)}Ψ/{setting.layout.servers or setting.replicas}"
    words += " of a parameter server" * (setting.layout.servers > 0)
    beside = f"{words} of each of its ranks" + (", and of the ranks whose replicas it holds" if len(nodes) > 1 else "")
    return SnapshotMemory(Formula(words, min(ranks), max(ranks)), Formula(beside, min(held), max(held)))


def rank_bytes(setting: Setting) -> list[int]:
    """Bytes of the tensors in each rank's segments, by rank."""
    layout = setting.layout
    if layout.servers:
        held_by = parameter_server.keys(setting)
        return [0] * layout.data + [SEGMENTS * bytes_per_element(setting) * sum(sizes) for sizes in held_by]
    parts, apart = setting.cut if layout.zero else 1, layout.tensor // layout.division.copies
    known: dict[tuple[int, int, int], list[int]] = {}
    found = []
    for rank in range(layout.world_size):
        replica = rank // apart % setting.replicas
        place = (rank // (layout.world_size // layout.pipeline), rank % apart, replica % parts)
        if place not in known:
            held = setting.decoder.held(layout, place[0], place[1])
            known[place] = _spread(setting, _elements(held, parts, place[2]), setting.replicas // parts, place[0])
        found.append(SEGMENTS * known[place][replica // parts])
    return found


def fullest_bytes(setting: Setting, kept: float, largest: int, place: int = 0) -> int:
    """Bytes of the segments of the fullest rank at `place` of its pipeline, where a rank keeps `kept` numbers and the largest parameter has
    `largest`.
    """
    if setting.layout.servers:
        return SEGMENTS * bytes_per_element(setting) * parameter_server.most_elements(setting)
    parts = setting.cut if setting.layout.zero else 1
    even = round(bytes_per_element(setting, place) * kept)
    return SEGMENTS * (max(even, setting.master * largest // parts) if parts < setting.replicas else even)


def bytes_per_element(setting: Setting, place: int = 0) -> int:
    """Bytes of a parameter's value, moments and older versions, if there are such at `place` of a pipeline, in a snapshot."""
    older = versions_of(setting.layout, place) - 1
    return (1 + setting.moments) * setting.master + older * setting.compute


def _spread(setting: Setting, elements: Iterable[int], copies: int, place: int) -> list[int]:
    """Bytes that each of `copies` replicas keeps of tensors with these elements, at `place` of a pipeline.

    Each tensor goes to the replica with the fewest so far.
    """
    elements = list(elements)
    values = [setting.master * count for count in elements]
    older = [setting.compute * count for count in elements for _ in range(versions_of(setting.layout, place) - 1)]
    kept = [0] * copies
    for size in [*values, *(size for size in values for _ in range(setting.moments)), *older]:
        kept[kept.index(min(kept))] += size
    return kept


def _elements(held: Iterable[Weight], parts: int, index: int) -> list[int]:
    """Elements of chunk `index` of `parts` of each weight."""
    return [weight.chunk_of(parts, index) for weight in held]
