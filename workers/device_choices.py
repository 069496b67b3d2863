"""Decides the options that a spec leaves to its devices: `precision.compute: auto` and `compile: auto`. Imports no torch.

The stored spec keeps `auto`. Plan, preview, dry run and trainers decide here, from the same facts, and give a reason. An option
that the spec names is never changed.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ..strategies.delayed_rules import check_delayed
from ..strategies.layout import ModelFacts, Refusal
from ..strategies.memory_options import check_memory_options, splits_backward
from .spec import TrainSpec

DeviceKind = Literal["cpu", "cuda"]
Capability = tuple[int, int]

#: The oldest compute capability whose tensor cores multiply in bf16, and the oldest that Triton supports: Ampere.
OLDEST: Final[Capability] = (8, 0)
#: Fewer steps than this end before the time that compiling takes is won back. An assumption, not a measurement.
FEWEST_STEPS: Final = 500


@dataclass(frozen=True)
class DeviceFacts:
    """What the choices depend on: the devices of a whole gang, as far as they are known."""

    kind: DeviceKind
    capability: Capability | None = None  # compute capability of the oldest GPU; None: not known, taken as new
    no_compiler: str | None = None  # why a node cannot compile for its GPUs; None: it can, or it is not known


@dataclass(frozen=True)
class Choices:
    """The spec with every option decided, and a sentence for each option that was `auto`."""

    train: TrainSpec
    reasons: tuple[str, ...]


def choices(train: TrainSpec, facts: ModelFacts, device: DeviceFacts) -> Choices:
    """What `train` means for a model of these `facts` on this device."""
    reasons = []
    compute, compiled = train.precision.compute, train.compile
    if compute == "auto":
        compute, why = _compute(device)
        reasons.append(f"precision is {compute}: {why}")
        train = _with(train, compute=compute)
    if compiled == "auto":
        no = _why_not_compiled(train, facts, device)
        reasons.append(f"compile is {'false' if no else 'true'}: {no or 'GPUs gain from it.'}")
        train = _with(train, compile=no is None)
    return Choices(train, tuple(reasons))


def as_reported(train: TrainSpec, plan: dict[str, Any]) -> TrainSpec:
    """`train` with the choices that its trainers reported in a `plan` event; `auto` stays where they reported none."""
    compute, compiled = plan.get("precision"), plan.get("compile")
    if train.precision.compute == "auto" and compute is not None:
        train = _with(train, compute=compute)
    return _with(train, compile=compiled) if train.compile == "auto" and compiled is not None else train


def uncompiled(train: TrainSpec) -> TrainSpec:
    """`train` without compiled blocks where compiling was left to the devices."""
    return _with(train, compile=False) if train.compile == "auto" else train


def continues_in(before: str, now: str) -> str:
    """The sentence for a run in the dtype `now` that continues from a checkpoint of one in `before`."""
    return f"The checkpoint was computed in {before}, and this run continues in {now}."


def _with(train: TrainSpec, **changed: Any) -> TrainSpec:
    if "compute" in changed:
        changed = {"precision": train.precision.model_copy(update=changed)}
    return train.model_copy(update=changed)


def _compute(device: DeviceFacts) -> tuple[Literal["fp32", "bf16"], str]:
    """The dtype of computation, and why."""
    if device.kind == "cpu":
        return "fp32", "the devices are CPUs."
    if _is_old(device):
        remedy = "Set precision to fp16, which their tensor cores multiply."
        return "fp32", f"{_old(device)}, and have no fast bf16. {remedy}"
    return "bf16", "the devices are GPUs."


def _why_not_compiled(train: TrainSpec, facts: ModelFacts, device: DeviceFacts) -> str | None:
    """Why blocks are not compiled, the first reason that holds; None if they are."""
    if device.kind == "cpu":
        return "CPUs gain little from it."
    layout, refused = train.layout, _refused(train, facts)
    reasons = {
        f"{_old(device)}, which Triton does not support.": _is_old(device),
        refused: bool(refused),
        f"{layout.schedule} splits the backward pass. Then layers with weights are not compiled, and the rest was not timed on GPUs.": (
            splits_backward(layout)
        ),
        "attention under masks by document is not compiled, and the blocks around it were not timed on GPUs.": train.data.is_packed,
        "a module of your own may not be compilable.": train.model.import_ is not None,
        "an expert gets another number of tokens in each step, and would be compiled again.": facts.experts is not None,
        "messages inside compiled blocks are neither counted nor timed.": layout.tensor > 1 or layout.context > 1,
        "the compiler keeps the fastest of several kernels, whose sums are rounded differently.": train.deterministic,
        "fp64 is for proofs.": train.precision.compute == "fp64",
        f"fewer than {FEWEST_STEPS} steps do not win back the time that it takes.": train.steps < FEWEST_STEPS,
        device.no_compiler or "": device.no_compiler is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _refused(train: TrainSpec, facts: ModelFacts) -> str:
    """Why the spec would be refused if it asked for compiled blocks; empty if it would not."""
    options = replace(train.memory_options, compile=True)
    try:
        check_memory_options(train.layout, options)
        check_delayed(train.layout, options, facts, train.precision.compute)
    except Refusal as refusal:
        return refusal.message if refusal.field == "compile" else ""
    return ""


def _is_old(device: DeviceFacts) -> bool:
    return device.capability is not None and device.capability < OLDEST


def _old(device: DeviceFacts) -> str:
    oldest, this = (".".join(map(str, one)) for one in (OLDEST, device.capability or OLDEST))
    return f"GPUs of compute capability {this} are older than {oldest}"
