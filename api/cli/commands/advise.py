"""`shardyard advise`: the fastest layouts of a spec that fit, by formulas. Takes no device and no control plane."""

import math
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import typer
import yaml

from ....service.spec import JobSpec
from ....strategies.advisor.hardware import Hardware
from ....strategies.layout import Refusal
from ....workers.advisor.known_hardware import (
    GPUS_PER_NODE,
    INTER_GBPS,
    MFU,
    Given,
    as_measured,
    of_cpus,
    of_gpus,
)
from ....workers.advisor import search
from ....workers.advisor.search import Advice, Question, Row
from ....workers.device_choices import DeviceFacts, choices
from ....workers.host_memory import total_memory
from ....workers.models.presets import Architecture
from ....workers.spec import TrainSpec, facts_of
from ... import spec_file
from ...errors import InvalidParameter
from ...http.validation_errors import read_training_spec
from ..exit_codes import ExitCode
from ..options import Json, SpecPath
from ..terminal.screen import Screen, milliseconds, number, size
from .dry_run import gpu_model, vocabulary_here

_GBPS: Final = 1e9 / 8


def advise(  # noqa: PLR0913, PLR0917 - an option each
    spec: SpecPath,
    world: Annotated[
        int | None, typer.Option("--world", min=1, max=16_384, help="Number of ranks. Default: the spec's.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="GPU model. Default: H100; CPUs if the spec's resources.device is cpu."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, max=100, help="Number of layouts, each of other degrees.")] = 10,
    per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", min=1, help=f"Ranks of a node. Default: {GPUS_PER_NODE} GPUs.")
    ] = None,
    intra_gbps: Annotated[
        float | None,
        typer.Option("--intra-gbps", min=0.001, help="Gbit/s of a GPU's link within a node. Default: the model's."),
    ] = None,
    inter_gbps: Annotated[
        float | None,
        typer.Option("--inter-gbps", min=0.001, help=f"Gbit/s of a GPU's network card. Default: {INTER_GBPS:.0f}."),
    ] = None,
    peak_tflops: Annotated[
        float | None, typer.Option("--peak-tflops", min=0.001, help="Peak TFLOP/s of a rank. Default: the model's.")
    ] = None,
    mfu: Annotated[
        float | None,
        typer.Option("--mfu", min=0.01, max=1.0, help=f"Share of the peak that passes reach. Default: {MFU}."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure FLOP/s, memory and links on this machine, and count with them.")
    ] = False,
    json: Json = False,
) -> None:
    """Say which layouts of a number of ranks train a spec fastest, with their memory and time, by formulas."""
    given = read_training_spec(spec_file.load(spec))
    vocab = vocabulary_here(given.train)
    ranks = world or given.world_size
    question = _question(given, vocab, ranks, gpu, Given(peak_tflops, mfu, intra_gbps, inter_gbps, per_node), measure)
    try:
        found = search.advise(replace(question, top=top))
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None
    screen = Screen()
    if json:
        screen.json(_document(question, found))
    else:
        _show(screen, question, found)
    if not found.rows:
        raise typer.Exit(ExitCode.ERROR)


def _question(spec: JobSpec, vocab: int, world: int, gpu: str | None, given: Given, measure: bool) -> Question:
    """What is asked. Raises InvalidParameter for a model whose sizes the spec does not say, and for an unknown GPU."""
    architecture = _architecture(spec.train, vocab)
    cpu = gpu is None and spec.device == "cpu"
    if measure:
        cpu = _measures_cpus(gpu)
    model = gpu_model(gpu or "H100")
    capability = None if cpu else model.capability
    facts = DeviceFacts("cpu" if cpu else "cuda", capability)
    precision = choices(spec.train, facts_of(architecture), facts).train.precision.compute
    cores = len(os.sched_getaffinity(0))
    hardware = (
        of_cpus(cores, total_memory() or None, world, given) if cpu else of_gpus(model, precision, world, given)
    )
    if measure:
        from .local_hardware import measured_here

        hardware = as_measured(hardware, measured_here(spec.train, vocab, world), given)
    return Question(spec.train, architecture, hardware, world, capability=capability)


def _architecture(train: TrainSpec, vocab: int) -> Architecture:
    try:
        found = train.architecture(vocab)
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None
    if found is None:
        message = "The sizes of a module of your own cannot be computed from the spec."
        remedy = "Time the layouts that you consider: shardyard run --local, with a few steps of each."
        raise InvalidParameter(message, field="train.model.import", remedy=remedy)
    return found


def _measures_cpus(gpu: str | None) -> bool:
    """Whether ranks of this machine are on CPUs. Raises InvalidParameter if GPUs are asked for that it does not have."""
    from .local_hardware import device_here

    cpu = device_here() == "cpu"
    if cpu and gpu is not None:
        message = "This machine has no GPU that could be measured."
        remedy = "Leave --gpu out to measure its CPUs, or --measure to count with what is known of the GPU."
        raise InvalidParameter(message, field="--measure", remedy=remedy)
    return cpu


# Output.


def _show(screen: Screen, question: Question, found: Advice) -> None:
    screen.facts(f"{question.world} ranks", _hardware_facts(question.hardware))
    if found.rows:
        head = (
            "LAYOUT", "MICRO-BATCHES", "RECOMPUTE", "STEP", "COMPUTE", "AGAIN", "MESSAGES", "BUBBLE", "UPDATE", "MEMORY",
        )  # fmt: skip
        screen.table(head, [_cells(row) for row in found.rows])
        _show_first(screen, found.rows[0])
    else:
        least = "" if math.isinf(found.least_needed) else f" The most frugal one needs {size(found.least_needed)} or more."
        screen.error(f"No layout of {question.world} ranks fits.{least} Use more ranks, or a smaller model.")
    screen.facts("left out", _left_out(found))


def _hardware_facts(hardware: Hardware) -> Iterator[tuple[str, str | None]]:
    yield "passes", f"{hardware.flops / 1e12:,.4g} TFLOP/s of a rank, {_time(hardware.block_s)} more per block and micro-batch"
    memory = f"{size(hardware.memory)}, " if hardware.memory else ""
    yield "memory", f"{memory}{hardware.memory_bandwidth / 1e9:,.4g} GB/s for updates"
    for name, link in (("within a node", hardware.intra), ("between nodes", hardware.inter)):
        yield name, f"{link.bandwidth / _GBPS:,.4g} Gbit/s, {_time(link.latency)} more per message"
    shared = f", which share cores: {hardware.cores:.2g} each" if hardware.cores < 1 else ""
    yield "node", f"{hardware.ranks_per_node} ranks{shared}"
    yield "hidden", f"{hardware.hidden:.0%} of computing hides messages beside it"


def _cells(row: Row) -> tuple[str, ...]:
    time, batch = row.time, row.batch
    passes = time.passes
    return (
        str(row.train.layout),
        f"{batch.microbatches} × {batch.micro_batch}",
        row.train.recompute.mode,
        *map(_time, (time.seconds, passes.compute, passes.recompute, time.communication, passes.bubble, time.optimizer)),
        size(row.verdict.needed) or "",
    )


def _show_first(screen: Screen, row: Row) -> None:
    """Print the first row's lines of a spec, and what its time and memory consist of."""
    time = row.time
    sent = {**time.passes.sent, "data": time.data}
    tokens = row.batch.global_batch * row.train.data.tokens_per_sample
    lines = yaml.safe_dump(_fields(row), default_flow_style=None, sort_keys=False, width=1000).strip()
    screen.paragraph("train", lines)
    screen.facts(
        "of which",
        [
            ("tokens/s", number(tokens / time.seconds)),
            ("messages", ", ".join(f"{axis} {_time(seconds)}" for axis, seconds in sent.items() if seconds)),
            ("memory", ", ".join(f"{kind} {size(held)}" for kind, held in row.plan.by_kind.items())),
        ],
    )


def _left_out(found: Advice) -> Iterator[tuple[str, str | None]]:
    yield "candidates", number(found.candidates)
    for field, reason, count in found.axes.refused:
        yield field, f"{count} degrees: {reason}"
    for field, count in sorted(found.refused.items()):
        yield field, f"{number(count)} candidates are refused with the others of their degrees"
    yield "memory", f"{number(found.too_large)} do not fit" if found.too_large else None
    yield "time", f"{number(found.slower)} are slower than those shown, or than another one of their degrees"
    yield "offload", "nothing fits without it" if found.offloaded else None


def _fields(row: Row) -> dict[str, Any]:
    """What a spec's `train` says for this row."""
    offload = row.train.offload.model_dump(exclude_defaults=True)
    return {
        "layout": row.train.layout.model_dump(mode="json", exclude_defaults=True),
        "recompute": row.train.recompute.mode,
        **({"offload": offload} if offload else {}),
    }


def _document(question: Question, found: Advice) -> dict[str, Any]:
    return {
        "world_size": question.world,
        "hardware": asdict(question.hardware),
        "layouts": [_row(row) for row in found.rows],
        "left_out": {
            "candidates": found.candidates,
            "degrees": [{"field": field, "message": reason, "count": count} for field, reason, count in found.axes.refused],
            "refused": dict(found.refused),
            "does_not_fit": found.too_large,
            "slower": found.slower,
        },
        "offloaded": found.offloaded,
    }


def _row(row: Row) -> dict[str, Any]:
    time = row.time
    tokens = row.batch.global_batch * row.train.data.tokens_per_sample
    return {
        **_fields(row),
        "words": str(row.train.layout),
        "microbatches": row.batch.microbatches,
        "seconds": time.seconds,
        "tokens_per_s": tokens / time.seconds,
        "compute_s": time.passes.compute,
        "recompute_s": time.passes.recompute,
        "bubble_s": time.passes.bubble,
        "optimizer_s": time.optimizer,
        "messages_s": {**time.passes.sent, "data": time.data},
        "needed_bytes": row.verdict.needed,
        "kinds": dict(row.plan.by_kind),
    }


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs" if seconds else "0"
    return f"{seconds:,.3g} s" if seconds >= 1 else milliseconds(seconds) or ""
