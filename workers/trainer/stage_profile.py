"""The profile by which a pipeline is split: measured when a gang begins, and kept when it continues from snapshots in memory.

A snapshot has the slices of its rank's own stages, so a gang that restores one must split the model as before. A checkpoint fits every
split. So a run that continues from one measures again, on the devices that it has then, and reports the new profile in its plan.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import torch

from ...strategies.context_parallel.apply import share_batch
from ...strategies.cost.replica_partition import Stage, partition, slowest, steps
from ...strategies.cost.stage_balance import ModuleCosts, stage_blocks
from ...strategies.layout import Layout, profiled
from ...strategies.mesh import Mesh
from ...strategies.module_profile import measured
from ...strategies.parallelize import Recipe
from ..data.dataset import Tokens
from ..data.own_source import OwnSamples
from ..snapshot.header import read, segment_of
from ..spec import TrainSpec
from .segment_writer import SnapshotError

Profiler = Callable[[Recipe], ModuleCosts]

#: The key of the profile among a snapshot's facts.
PROFILE: Final = "profile"
#: The most steps of the programme of replicas, which take about half a second.
_MOST_STEPS: Final = 500_000


def profiler(spec: TrainSpec, mesh: Mesh, tokens: Tokens | OwnSamples, kept: ModuleCosts | None) -> Profiler | None:
    """What returns the profile of a model: `kept` if there is one, else it is measured. None where FLOPs decide.

    It is measured with the first sequences of the corpus, as many as a rank gets of a micro-batch.
    """
    if not profiled(spec.layout):
        return None

    def profile(recipe: Recipe) -> ModuleCosts:
        if kept is not None:
            return kept
        sequences = recipe.batch.micro_batch // mesh.layout.division.rows
        inputs, targets = tokens.batch(0, slice(sequences))
        assert isinstance(inputs, torch.Tensor)  # fields are refused with a profile
        given, wanted = share_batch(inputs, targets, mesh, tokens.end)
        return measured(recipe, mesh, given.to(mesh.device), wanted.to(mesh.device))

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
    return from_facts(header.facts)


def from_facts(found: Mapping[str, Any]) -> ModuleCosts:
    """The profile that `facts` wrote."""
    numbers: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found[PROFILE].items()
    }
    return ModuleCosts(**numbers)


def format_costs(profile: ModuleCosts | None) -> tuple[str, ...]:
    """A sentence for the `plan` event; none if there is no profile. Equal neighbours among the blocks stand there once."""
    if profile is None:
        return ()
    blocks = ", ".join(f"{len(list(equal))} of {_ms(took)}" for took, equal in groupby(profile.blocks))
    ends = f"embedding {_ms(profile.embed)}, head {_ms(profile.head)}, messages at most {_ms(max(profile.messages))}"
    return (f"layout.pipeline is split by a micro-batch's times in ms: blocks {blocks}; {ends}.",)


def format_replicas(profile: ModuleCosts | None, layout: Layout, microbatches: int) -> tuple[str, ...]:
    """A sentence for the `plan` event: how fast the stages of `layout` are, and the fastest of PipeDream's programme on as many ranks.

    Empty without a profile, where a rank has several stages, and where the programme would take long. `microbatches`: those of a
    replica in a step, after which its gradients are summed over replicas.
    """
    ranks = layout.pipeline * layout.data
    if profile is None or layout.stages_per_rank > 1 or steps(profile, ranks) > _MOST_STEPS:
        return ()
    own = tuple(Stage(len(blocks), layout.data) for blocks in stage_blocks(layout, profile))
    now, best = slowest(profile, own, microbatches), partition(profile, ranks, microbatches)
    faster = f"{_stages(best.stages)} would take {_ms(best.time)} ms" if best.time < now else "no others are faster"
    return (f"Stages of blocks × replicas: {_stages(own)} take {_ms(now)} ms per micro-batch, {faster}.",)


def _stages(stages: Sequence[Stage]) -> str:
    return ", ".join(map(str, stages))


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3g}"
