"""`shardyard dry-run`: one step of a spec's layout, of any size, on GPUs that compute nothing. Takes no device and no control plane."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from ....service.jobs.validation import check_layout
from ....strategies.cost.node_room import GPU_RESERVED_BYTES
from ....strategies.layout import Layout, Refusal
from ....workers.data.corpus import sources
from ....workers.data.errors import DataError
from ....workers.data.tokenizer import vocab_size
from ....workers.dry_run.processes import DryRunFailed, Request, disagreements, dry_runs, representatives
from ....workers.dry_run.report import DryRun, HostSync
from ....workers.gpu_models import GpuModel
from ....workers.models.presets import Architecture
from ....workers.spec import TrainSpec
from ... import spec_file
from ...errors import InvalidParameter
from ...gpu_argument import gpu_model
from ...http.validation_errors import read_training_spec
from ...spec_overrides import with_overrides
from ..exit_codes import ExitCode
from ..options import Json, Overrides, SpecPath
from ..terminal.screen import Screen, number, size

#: Host synchronisations and collectives that are listed.
_MOST_LINES = 20


def dry_run(
    spec: SpecPath,
    overrides: Overrides = None,
    world: Annotated[
        int | None,
        typer.Option("--world", min=1, help="Number of ranks; the data-parallel degree follows. Default: the spec's."),
    ] = None,
    rank_: Annotated[
        str | None,
        typer.Option("--rank", help="A rank, or `all`. Default: one rank of each place in the pipeline."),
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="GPU model, such as H100, A100 80GB or L40S.")] = "H100",
    whole: Annotated[
        bool, typer.Option("--whole", help="Run all blocks and micro-batches instead of extrapolating from a few.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what one step of a spec needs on GPUs, without one: memory by phase and kind, host waits, collectives."""
    model = gpu_model(gpu, "--gpu")
    given = with_overrides(spec_file.read(spec), overrides or [])
    train = _resized(read_training_spec(given.document).train, world)
    vocab = vocabulary_here(train)
    check_layout(train, vocab)
    ranks = _ranks(train.layout, rank_)
    reports = _reports([Request(train, vocab, model, rank, whole) for rank in ranks])
    problems = disagreements(reports)
    fits = all(_needed(report) <= model.memory_bytes for report in reports.values())
    screen = Screen()
    if json:
        memory = {
            "gpu": model.name,
            "memory_bytes": model.memory_bytes,
            "reserved_bytes": GPU_RESERVED_BYTES,
            "fits": fits,
        }
        screen.json({**memory, "problems": problems, "ranks": [asdict(report) for report in reports.values()]})
    else:
        _show(screen, reports, model)
        for problem in problems:
            screen.error(problem)
    if problems or not fits:
        raise typer.Exit(ExitCode.ERROR)


def _reports(requests: Sequence[Request]) -> dict[int, DryRun]:
    """Rank → its report. Raises InvalidParameter with the reason of a dry run that was refused or broke off."""
    try:
        found = dry_runs(requests)
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None
    except DryRunFailed as error:
        raise InvalidParameter(str(error)) from None
    return {request.rank: report for request, report in zip(requests, found, strict=True)}


def _resized(train: TrainSpec, world: int | None) -> TrainSpec:
    """`train` on `world` ranks. Raises InvalidParameter if the layout does not divide them."""
    if world is None:
        return train
    one = train.layout.model_copy(update={"data": 1, "elastic": None})
    data, rest = divmod(world, one.world_size)
    if rest or not data:
        raise InvalidParameter(
            f"{world} ranks are not a multiple of the {one.world_size} that one replica of this layout has.",
            field="--world",
            remedy=f"Use a multiple of {one.world_size}, for example {max(1, data) * one.world_size}.",
        )
    return train.model_copy(update={"layout": one.model_copy(update={"data": data})})


def vocabulary_here(train: TrainSpec) -> int:
    """The tokenizer's size; the model's, if it has one of its own and the tokenizer is not here."""
    try:
        return vocab_size(train.data, train.model.vocab)
    except DataError as error:
        remedy = "Give model.vocab, or the path of a tokenizer that is on this machine."
        raise InvalidParameter(str(error), field="train.data.tokenizer", remedy=remedy) from None


def check_here(train: TrainSpec) -> None:
    """Raise InvalidLayout or InvalidParameter for a decided layout that the model refuses, and for text that is not on this machine."""
    check_layout(train, vocabulary_here(train))
    if train.data.is_own:
        return
    try:
        sources(train.data)
    except DataError as error:
        raise InvalidParameter(error.message, field=f"train.{error.field}", remedy=error.remedy) from None


def architecture_here(train: TrainSpec, vocab: int) -> Architecture | None:
    """The model's sizes; None: they are not known. Raises InvalidParameter for a folder that cannot be used."""
    try:
        return train.architecture(vocab)
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _ranks(layout: Layout, wanted: str | None) -> tuple[int, ...]:
    if wanted is None:
        return representatives(layout)
    if wanted == "all":
        return tuple(range(layout.world_size))
    if not wanted.isdecimal() or int(wanted) >= layout.world_size:
        raise InvalidParameter(
            f"{wanted!r} is not a rank of {layout.world_size}.",
            field="--rank",
            remedy=f"Use all, or a number from 0 to {layout.world_size - 1}.",
        )
    return (int(wanted),)


def _needed(report: DryRun) -> int:
    return report.peak_bytes + GPU_RESERVED_BYTES


def _show(screen: Screen, reports: Mapping[int, DryRun], model: GpuModel) -> None:
    """Print the rank that needs most, and where there are several, a line of each."""
    fullest = max(reports.values(), key=_needed)
    needed = _needed(fullest)
    fits = "fits" if needed <= model.memory_bytes else "does not fit"
    screen.facts(
        f"{fullest.layout}, rank {fullest.rank} of {fullest.world_size}",
        [
            ("parameters", number(fullest.parameters)),
            ("precision", fullest.precision),
            *(("", reason) for reason in fullest.choices),
            ("memory", f"{fits} on {model.name}: {size(needed)} of {size(model.memory_bytes)}"),
            ("peak", f"{size(fullest.peak_bytes)} of tensors in {fullest.peak_phase}"),
            ("at the peak", ", ".join(f"{kind} {size(held)}" for kind, held in fullest.by_kind.items())),
            ("reserved", f"{size(GPU_RESERVED_BYTES)} for the CUDA context, cuBLAS and NCCL (an assumption)"),
            ("on the host", f"{size(fullest.host_bytes)} of tensors"),
            ("run", _run(fullest)),
        ],
    )
    if len(reports) > 1:
        rows = [
            (str(r), size(_needed(one)) or "", size(one.state_bytes) or "", one.peak_phase)
            for r, one in reports.items()
        ]
        screen.table(("RANK", "NEEDS", "STATE", "PEAK IN"), rows)
    phases = [(peak.phase, size(peak.bytes) or "", peak.line or "(backward)", peak.operator) for peak in fullest.phases]
    screen.table(("PHASE", "PEAK", "AT", "OPERATOR"), phases)
    _show_waits(screen, "HOST WAITS PER STEP", fullest.host_syncs)
    _show_waits(screen, "HOST WAITS PER VALIDATION BATCH", fullest.validation_syncs)
    sent = sorted(fullest.collectives, key=lambda one: -one.bytes)
    if sent:
        screen.table(
            ("COLLECTIVES PER STEP", "AXIS", "CALLS", "SENT"),
            [(one.kind, one.axis, number(one.calls) or "", size(one.bytes) or "") for one in sent[:_MOST_LINES]],
        )


def _show_waits(screen: Screen, title: str, waits: Sequence[HostSync]) -> None:
    if waits:
        most = sorted(waits, key=lambda sync: -sync.count)[:_MOST_LINES]
        screen.table((title, "FOR", "AT"), [(str(wait.count), wait.what, wait.line) for wait in most])


def _run(report: DryRun) -> str:
    took = f"{report.seconds:.1f} s"
    if not report.extrapolated_from:
        return f"one whole step in {took}"
    sizes = ", ".join(f"{blocks or 'all'} × {microbatches}" for blocks, microbatches in report.extrapolated_from)
    return f"extrapolated from blocks per stage × micro-batches: {sizes}; {took}"
