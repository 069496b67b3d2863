"""Advises on layouts: what a spec is asked about, and the answer as a value. Stores nothing, and takes no device."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...strategies.advisor.hardware import Hardware, Link
from ...strategies.layout import Refusal
from ...strategies.memory_options import Offload
from ...workers.advisor import search
from ...workers.advisor.known_hardware import Given, of_cpus, of_gpus
from ...workers.device_choices import DeviceFacts, choices
from ...workers.gpu_models import GpuModel
from ...workers.models.presets import Architecture
from ...workers.spec import TrainSpec, facts_of
from ..errors import InvalidLayout, InvalidSpec
from ..schemas.advice import (
    AdvisedHardware,
    AdvisedLayout,
    AdvisedLink,
    AxisSeconds,
    LayoutAdvice,
    LeftOut,
    RefusedCandidates,
    RefusedDegrees,
)
from ..schemas.memory_plan import KindBytes
from ..settings import Settings
from ..spec import JobSpec
from ..spec_files import SpecFiles
from . import validation

#: The largest number of ranks whose layouts are searched.
MOST_RANKS: Final = 4096


@dataclass(frozen=True)
class Cpus:
    """Nodes of CPUs. `memory`: bytes of a node, which its ranks share; None: unknown."""

    cores: int
    memory: int | None = None


@dataclass(frozen=True)
class AdviceRequest:
    """What is asked beside the spec. `given`: what the user says of the hardware."""

    world: int
    devices: GpuModel | Cpus
    top: int = 10
    given: Given = field(default_factory=Given)


async def advice(settings: Settings, spec: JobSpec, files: SpecFiles, wanted: AdviceRequest) -> LayoutAdvice:
    """The answer for a spec whose files are the server's. Raises InvalidLayout, InvalidSpec, and what `SpecFiles` raises."""
    # The layout that it has is replaced, so it need not run.
    plain = validation.on_one_rank(spec.train)
    checked = await validation.check(spec.model_copy(update={"train": plain}), settings, files)
    asked = question(spec.train, checked.architecture, wanted)
    return await files.search(partial(answered, asked))


def question(train: TrainSpec, architecture: Architecture | None, wanted: AdviceRequest) -> search.Question:
    """What the search is asked. Raises InvalidSpec where the model's sizes are not known, and for too many ranks."""
    if wanted.world > MOST_RANKS:
        message = f"Layouts of {wanted.world:,} ranks are not searched, but those of at most {MOST_RANKS:,}."
        remedy = "Name the number of ranks beside the spec: world, or --world of shardyard advise."
        raise InvalidSpec(message, field="train.layout", remedy=remedy)
    if architecture is None:
        message = "The sizes of this model are not known before it runs: it is a module of your own, or only the workers have its files."
        remedy = "Time the layouts that you consider, with a few steps of each: shardyard run --local."
        raise InvalidSpec(message, field="train.model", remedy=remedy)
    devices, world = wanted.devices, wanted.world
    if isinstance(devices, Cpus):
        hardware = of_cpus(devices.cores, devices.memory, world, wanted.given)
        return search.Question(train, architecture, hardware, world, wanted.top)
    facts = DeviceFacts("cuda", devices.capability)
    precision = choices(train, facts_of(architecture), facts).train.precision.compute
    hardware = of_gpus(devices, precision, world, wanted.given)
    return search.Question(train, architecture, hardware, world, wanted.top, devices.capability)


def ranks_of(spec: JobSpec) -> int:
    """The number of ranks that the spec says. Raises InvalidSpec if it leaves that to the layout advisor."""
    auto = spec.train.layout.auto
    if auto is None or not auto.undecided:
        return spec.world_size
    if auto.world is None:
        message = "The layout is auto, and the spec does not say for how many ranks."
        remedy = "Give the number of ranks, here (world) or in the spec, as in layout: {auto: {world: 8}}."
        raise InvalidSpec(message, field="train.layout.auto.world", remedy=remedy)
    return auto.world


def found_layouts(asked: search.Question) -> search.Advice:
    """What the search finds. Raises InvalidLayout for a spec that no layout can run."""
    try:
        return search.advise(asked)
    except Refusal as refusal:
        raise InvalidLayout(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def answered(asked: search.Question) -> LayoutAdvice:
    """The answer. Raises InvalidLayout for a spec that no layout can run."""
    found = found_layouts(asked)
    return LayoutAdvice(
        world_size=asked.world,
        hardware=_hardware(asked.hardware),
        layouts=[_layout(row, asked.train.offload) for row in found.rows],
        offloaded=found.offloaded,
        left_out=LeftOut(
            candidates=found.candidates,
            degrees=[
                RefusedDegrees(field=f"train.{name}", message=message, count=count)
                for name, message, count in found.axes.refused
            ],
            refused=[
                RefusedCandidates(field=f"train.{name}", count=count) for name, count in sorted(found.refused.items())
            ],
            does_not_fit=found.too_large,
            slower=found.slower,
            least_needed_bytes=None if math.isinf(found.least_needed) else round(found.least_needed),
            least_host_bytes=None if math.isinf(found.least_on_host) else round(found.least_on_host),
        ),
    )


def _hardware(found: Hardware) -> AdvisedHardware:
    return AdvisedHardware(
        device=found.device,
        flops=found.flops,
        memory_bytes=found.memory,
        host_memory_bytes=found.host_memory,
        memory_bandwidth=found.memory_bandwidth,
        ranks_per_node=found.ranks_per_node,
        cores=found.cores,
        intra=_link(found.intra),
        inter=_link(found.inter),
        block_s=found.block_s,
        hidden=found.hidden,
    )


def _link(found: Link) -> AdvisedLink:
    return AdvisedLink(bandwidth=found.bandwidth, latency_s=found.latency)


def _layout(row: search.Row, given: Offload) -> AdvisedLayout:
    """The row with the lines that select it in a spec whose offload is `given`."""
    time, train = row.time, row.train
    sent = {**time.passes.sent, "data": time.data}
    offload = train.offload.model_dump(mode="json", exclude_defaults=True)
    fields = {
        "layout": train.layout.model_dump(mode="json", exclude_defaults=True),
        "recompute": train.recompute.mode if train.recompute.every == 1 else train.recompute.model_dump(mode="json"),
        **({"offload": offload} if offload or given != Offload() else {}),
    }
    return AdvisedLayout(
        layout=str(train.layout),
        train=fields,
        microbatches=row.batch.microbatches,
        micro_batch=row.batch.micro_batch,
        seconds=time.seconds,
        compute_s=time.passes.compute,
        recompute_s=time.passes.recompute,
        messages=[AxisSeconds(axis=axis, seconds=seconds) for axis, seconds in sent.items() if seconds],
        bubble_s=time.passes.bubble,
        optimizer_s=time.optimizer,
        tokens_per_s=row.batch.global_batch * train.data.tokens_per_sample / time.seconds,
        needed_bytes=row.verdict.needed,
        kinds=[KindBytes(kind=kind, bytes=held) for kind, held in row.plan.by_kind.items()],
        host=[KindBytes(kind=kind, bytes=held) for kind, held in row.plan.offloaded.items()],
    )
