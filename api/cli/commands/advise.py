"""`shardyard advise`: the fastest layouts of a spec that fit, by formulas. Takes no device and no control plane."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final

import typer
import yaml

from ....service.jobs import advice
from ....service.schemas.advice import AdvisedHardware, AdvisedLayout, LayoutAdvice, LeftOut
from ....service.spec import JobSpec
from ....workers.advisor.known_hardware import GPUS_PER_NODE, INTER_GBPS, MFU, Given, as_measured
from ....workers.advisor.search import Question
from ....workers.gpu_models import GpuModel
from ....workers.host_memory import total_memory
from ... import spec_file
from ...errors import InvalidParameter
from ...gpu_argument import gpu_model
from ...http.validation_errors import read_training_spec
from ...spec_overrides import with_overrides
from ..exit_codes import ExitCode
from ..options import Json, Overrides, SpecPath
from ..terminal.screen import Screen, milliseconds, number, size
from .dry_run import architecture_here, vocabulary_here

_GBIT: Final = 1e9 / 8
_COLUMNS: Final = (
    "LAYOUT",
    "MICRO-BATCHES",
    "RECOMPUTE",
    "STEP",
    "COMPUTE",
    "AGAIN",
    "MESSAGES",
    "BUBBLE",
    "UPDATE",
    "NEEDS",
)


def advise(  # noqa: PLR0913, PLR0917 - an option each
    spec: SpecPath,
    overrides: Overrides = None,
    world: Annotated[
        int | None, typer.Option("--world", min=1, max=advice.MOST_RANKS, help="Number of ranks. Default: the spec's.")
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
        bool,
        typer.Option("--measure", help="Measure FLOP/s, updates and links on this machine, and count with its memory."),
    ] = False,
    json: Json = False,
) -> None:
    """Say which layouts of a number of ranks train a spec fastest, with their time and memory, by formulas."""
    loaded = read_training_spec(with_overrides(spec_file.read(spec), overrides or []).document)
    given = Given(peak_tflops, mfu, intra_gbps, inter_gbps, per_node)
    asked = _question(loaded, world or advice.ranks_of(loaded), gpu, given, measure)
    found = advice.answered(replace(asked, top=top))
    screen = Screen()
    if json:
        screen.json(found)
    else:
        _show(screen, found)
    if not found.layouts:
        raise typer.Exit(ExitCode.ERROR)


def _question(spec: JobSpec, world: int, gpu: str | None, given: Given, measure: bool) -> Question:
    """What is asked. Raises InvalidParameter for a GPU or a machine that it cannot be asked of, and InvalidSpec."""
    train, vocab = spec.train, vocabulary_here(spec.train)
    of_this_machine = measure and gpu is None
    if measure:
        gpu = _measured_gpu(gpu)
    cpu = gpu is None and (measure or spec.device == "cpu")
    here = advice.Cpus(len(os.sched_getaffinity(0)), total_memory() or None)
    devices: advice.Cpus | GpuModel = here if cpu else gpu_model(gpu or "H100", "--gpu")
    found = advice.question(train, architecture_here(train, vocab), advice.AdviceRequest(world, devices, given=given))
    if not measure:
        return found
    from .local_hardware import host_memory_here, measured_here  # needs torch

    hardware = as_measured(found.hardware, measured_here(train, vocab, world), given)
    if of_this_machine and not cpu:
        hardware = replace(hardware, host_memory=host_memory_here(hardware.ranks_per_node))
    return replace(found, hardware=hardware)


def _measured_gpu(gpu: str | None) -> str | None:
    """The GPU whose memory counts: the one that is asked for, or this machine's. None: the ranks of this machine are on CPUs.

    Raises InvalidParameter if a GPU is asked for, and there is none to measure.
    """
    from .local_hardware import gpu_here  # needs torch

    here = gpu_here()
    if here is None and gpu is not None:
        message = "This machine has no GPU that could be measured."
        remedy = "Leave --gpu out to measure its CPUs, or --measure to count with what is known of the GPU."
        raise InvalidParameter(message, field="--measure", remedy=remedy)
    return gpu or here


def _show(screen: Screen, found: LayoutAdvice) -> None:
    screen.facts(f"{found.world_size} ranks", _hardware_facts(found.hardware))
    if found.layouts:
        screen.table(_COLUMNS, [_cells(row) for row in found.layouts])
        _show_fastest(screen, found.layouts[0])
    else:
        screen.error(_nothing(found))
    screen.facts("Left out", _left_out(found.left_out))
    if found.offloaded and found.layouts:
        screen.say(_offloaded(found))


def _nothing(found: LayoutAdvice) -> str:
    """Why there is no layout, and what to change."""
    needed = size(found.left_out.least_needed_bytes)
    if (on_host := size(found.left_out.least_host_bytes)) is not None:
        needed = f"{on_host} of host memory"
    if needed is None:
        return f"The model and its batch have no layout of {found.world_size} ranks. Use another --world."
    least = f"The most frugal one needs {needed} per rank or more."
    return f"No layout of {found.world_size} ranks fits. {least} Use more ranks, or a smaller model."


def _offloaded(found: LayoutAdvice) -> str:
    """What the fastest layout has in host memory, and whether that is compared with what a node has."""
    hardware, first = found.hardware, "Nothing fits without offload of the optimizer's state to the host."
    if hardware.device == "cpu":
        return first
    held = size(hardware.ranks_per_node * sum(one.bytes for one in found.layouts[0].host))
    unknown = " How much a node has is not known here." if hardware.host_memory_bytes is None else ""
    return f"{first} With the fastest layout {hardware.ranks_per_node} ranks of a node hold {held} in host memory.{unknown}"


def _hardware_facts(hardware: AdvisedHardware) -> Iterator[tuple[str, str | None]]:
    per_block = f"{_time(hardware.block_s)} beside that per block and micro-batch"
    yield "passes", f"{hardware.flops / 1e12:,.4g} TFLOP/s per rank, {per_block}"
    shared = " for all its ranks" if hardware.device == "cpu" else ""
    yield "memory", f"{size(hardware.memory_bytes)}{shared}" if hardware.memory_bytes else None
    yield "host memory", f"{size(hardware.host_memory_bytes)} per node" if hardware.host_memory_bytes else None
    yield "updates", f"{hardware.memory_bandwidth / 1e9:,.4g} GB/s"
    for name, link in (("within a node", hardware.intra), ("between nodes", hardware.inter)):
        yield name, f"{link.bandwidth / _GBIT:,.4g} Gbit/s, {_time(link.latency_s)} beside that per message"
    cores = f", {hardware.cores:.2g} cores each" if hardware.cores < 1 else ""
    yield "node", f"{hardware.ranks_per_node} ranks{cores}"
    yield "overlap", f"{hardware.hidden:.0%} of computing hides messages beside it"


def _cells(row: AdvisedLayout) -> tuple[str, ...]:
    times = (row.seconds, row.compute_s, row.recompute_s, row.messages_s, row.bubble_s, row.optimizer_s)
    return (
        row.layout,
        f"{row.microbatches} × {row.micro_batch}",
        _recompute(row.train["recompute"]),
        *map(_time, times),
        size(row.needed_bytes) or "",
    )


def _recompute(given: str | dict[str, Any]) -> str:
    return given if isinstance(given, str) else f"{given['mode']}, every {given.get('every', 1)}"


def _show_fastest(screen: Screen, row: AdvisedLayout) -> None:
    """Print the lines of a spec that select the fastest layout, and what its time and memory consist of."""
    lines = yaml.safe_dump(row.train, default_flow_style=None, sort_keys=False, width=1000).strip()
    screen.paragraph("The fastest, below train:", lines)
    screen.facts(
        "Its parts",
        [
            ("tokens/s", number(row.tokens_per_s)),
            ("messages", ", ".join(f"{one.axis} {_time(one.seconds)}" for one in row.messages)),
            ("memory", ", ".join(f"{held.kind} {size(held.bytes)}" for held in row.kinds)),
            ("in host memory", ", ".join(f"{held.kind} {size(held.bytes)}" for held in row.host) or None),
        ],
    )


def _left_out(found: LeftOut) -> Iterator[tuple[str, str | None]]:
    for one in found.degrees:
        yield one.field, f"{one.count} degrees, such as: {one.message}"
    yield "candidates", number(found.candidates)
    for refused in found.refused:
        yield refused.field, f"{number(refused.count)} of them are refused"
    yield "memory", f"{number(found.does_not_fit)} do not fit" if found.does_not_fit else None
    yield "time", f"{number(found.slower)} are slower than those above, or than another one of their degrees"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs" if seconds else "0"
    return f"{seconds:,.3g} s" if seconds >= 1 else milliseconds(seconds) or ""
