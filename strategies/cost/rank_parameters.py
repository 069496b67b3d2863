"""How many parameters the fullest rank at a place of a pipeline has, whole and as ZeRO shards them. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from . import in_flight, zero_plus_plus
from .estimate import Setting
from .model_shape import Weight, chunks, elements, kept, padded


@dataclass(frozen=True)
class Rank:
    """The rank at `place` of its pipeline whose tensor shards are largest. Numbers of its parameters, whole and as ZeRO shards them."""

    setting: Setting
    place: int
    in_stages: tuple[int, ...]  # blocks of each of its stages
    parameters: int
    shard: int
    copied: int  # of the shard, those of a second copy on this rank, which has no optimizer state
    padded: int  # in chunks of ZeRO-1, each as large as the largest
    secondary: float  # bytes of ZeRO++'s second shard
    kept: float  # of the shard, those that its snapshots have
    block: int  # numbers of one block
    unshared: int  # of one block, those that no other rank of its sharding group has a part of: experts of ZeRO-3
    pinned: int  # bytes of its shards if each is in host memory of its own, of which torch pins powers of two
    module_shard: int  # of the largest module that ZeRO-3 gathers as one, as it shards it
    embed: int
    table: int  # of the embedding's table, of a model in one stage
    swapped: int  # of a tied table's gradient, what it gets from the pipeline's other end
    ends: int  # of embedding, last norm and head
    encoding: float  # bytes in which ZeRO++ quantises their gradients
    largest: int  # of one parameter
    largest_inside: int  # of a parameter of a block
    packed: int  # in buckets of several parameters, which stay from step to step
    last: bool  # it has the head and the loss

    @property
    def blocks(self) -> int:
        return sum(self.in_stages)

    @property
    def tied(self) -> int:
        """Those of its embedding's table if that is the head too, in a model of one stage."""
        return self.table if self.setting.decoder.tied else 0

    @property
    def own(self) -> int:
        """The parameters whose optimizer state it keeps."""
        return self.parameters if self.setting.layout.zero == 0 else self.shard - self.copied

    def in_flight(self, stages: Sequence[float]) -> float:
        """The most at once of what a pass through each of its stages holds."""
        of = self.setting
        return in_flight.heaviest(of.layout, of.batch.microbatches, self.place, stages, of.ends_apart)


def rank_at(setting: Setting, place: int, in_stages: Sequence[int]) -> Rank:
    """The rank at `place` (0-based) of its pipeline, whose stages have `in_stages` blocks."""
    layout, decoder = setting.layout, setting.decoder
    stages = layout.stages_of(place)
    own, last = tuple(in_stages[stage] for stage in stages), layout.stages - 1 in stages
    blocks = sum(own)
    block = [weight.of(layout) for weight in decoder.block]
    embed = [weight.of(layout) for weight in (decoder.embed if 0 in stages else ())]
    ends = [*embed, *(weight.of(layout) for weight in (decoder.end if last else ()))]
    shared = [decoder.embed[0].of(layout)] if setting.tied_ends else []
    tied = shared if last else []
    copies = tied if 0 in stages and layout.zero == 3 else []  # ZeRO-3 shards that of each stage by itself (`fsdp.py`)
    ends += copies if 0 in stages else tied
    return Rank(
        setting=setting,
        place=place,
        in_stages=own,
        parameters=blocks * elements(block) + elements(ends),
        shard=blocks * chunks(block, setting.cut) + chunks(ends, setting.cut),
        copied=chunks(copies, setting.cut),
        padded=blocks * padded(block, setting.cut) + padded(ends, setting.cut),
        pinned=blocks * _pinned(setting, block) + _pinned(setting, ends),
        module_shard=max(chunks(block, setting.cut) if blocks else 0, chunks(ends, setting.cut)),
        secondary=zero_plus_plus.secondary_bytes(setting, [*block * blocks, *ends]),
        largest=max(weight.elements for weight in (*(block if blocks else ()), *ends)),
        packed=blocks * _packed(setting, block) + _packed(setting, ends),
        kept=blocks * kept(block, setting.cut, setting.replicas)
        + kept(ends, setting.cut, setting.replicas)
        - kept(copies, setting.cut, setting.replicas),
        block=elements(block),
        unshared=elements(weight for weight in block if 1 < weight.spread >= setting.cut) * (layout.zero == 3),
        embed=elements(embed),
        table=embed[0].elements if layout.pipeline == 1 else 0,
        swapped=chunks(shared, setting.cut if layout.zero else 1) * ((0 in stages) != last),
        ends=elements(ends),
        encoding=zero_plus_plus.encoding_bytes(setting, ends) * (layout.zero == 3),
        largest_inside=max(weight.elements for weight in block),
        last=last,
    )


def _pinned(setting: Setting, weights: Sequence[Weight]) -> int:
    sizes = (setting.master * weight.chunk(setting.cut) for weight in weights)
    return sum(size if setting.device == "cpu" else 1 << (size - 1).bit_length() for size in sizes if size)


def _packed(setting: Setting, weights: Sequence[Weight]) -> int:
    """Numbers of the parameters that share a bucket: those of less than half its size."""
    most = setting.bucket_bytes / 2 / setting.gradients
    return sum(weight.elements for weight in weights if weight.elements < most)
