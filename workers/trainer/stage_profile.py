"""The profile by which a pipeline is split: measured when a gang begins, and kept when it continues from snapshots in memory.

A snapshot has the slices of its rank's own stages, so a gang that restores one must split the model as before. A checkpoint fits every
split. So a run that continues from one measures again, on the devices that it has then, and reports the new profile in its plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from math import prod
from typing import Any, Final

import torch

from ...strategies.cost.stage_balance import ModuleCosts
from ...strategies.layout import profiled
from ...strategies.mesh import Mesh
from ...strategies.parallelize import Recipe
from ...strategies.pipeline_parallel.module_profile import measured
from ..snapshot.header import read, segment_of
from ..spec import TrainSpec
from .segment_writer import SnapshotError

Profiler = Callable[[Recipe], ModuleCosts]

#: The key of the profile among a snapshot's facts.
PROFILE: Final = "profile"


def profiler(spec: TrainSpec, mesh: Mesh, vocab: int, kept: ModuleCosts | None) -> Profiler | None:
    """What returns the profile of a model: `kept` if there is one, else it is measured. None where FLOPs decide."""
    if not profiled(spec.layout):
        return None

    def profile(recipe: Recipe) -> ModuleCosts:
        shape = (recipe.batch.micro_batch, spec.data.seq_len)
        return kept or measured(recipe, mesh, torch.arange(prod(shape), device=mesh.device).view(shape) % vocab)

    return profile


def facts(profile: ModuleCosts | None) -> dict[str, Any]:
    """What a snapshot's facts have of it."""
    return {} if profile is None else {PROFILE: asdict(profile)}


def kept(spec: TrainSpec, slots: Sequence[int], step: int | None) -> ModuleCosts | None:
    """The profile of the snapshot of `step` in one of the segments `slots`. None if no step is given, or FLOPs decide.

    Raises `SnapshotError` if there is no such snapshot, or if it was split in another way. Other ranks do not measure then.
    """
    if step is None or not profiled(spec.layout):
        return None
    segment = segment_of(slots, step)
    header = None if segment is None else read(segment)
    if header is None or PROFILE not in header.facts:
        raise SnapshotError(f"this rank has no snapshot of step {step} with the profile by which its model was split")
    found = header.facts[PROFILE]
    return ModuleCosts(found["embed"], tuple(found["blocks"]), found["head"], tuple(found["messages"]))


def in_words(profile: ModuleCosts | None) -> tuple[str, ...]:
    """A sentence for the `plan` event; none if there is no profile. Equal neighbours among the blocks stand there once."""
    if profile is None:
        return ()
    blocks = ", ".join(f"{len(list(equal))} of {_ms(took)}" for took, equal in groupby(profile.blocks))
    ends = f"embedding {_ms(profile.embed)}, head {_ms(profile.head)}, messages at most {_ms(max(profile.messages))}"
    return (f"layout.pipeline is split by a micro-batch's times in ms: blocks {blocks}; {ends}.",)


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3g}"
