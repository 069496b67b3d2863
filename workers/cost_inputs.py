"""Derives the inputs of the memory and traffic formulas from a spec. Imports no torch."""

from ..strategies.cost.estimate import ELEMENT_BYTES, Setting, Unknown
from ..strategies.layout import profiled
from .device_choices import Capability, DeviceFacts, DeviceKind, choices
from .models.param_shapes import sizes
from .models.presets import Architecture
from .spec import TrainSpec, facts_of


def setting_of(
    spec: TrainSpec, vocab: int, device: DeviceKind, capability: Capability | None = None
) -> Setting | Unknown:
    """The inputs for a run on `device` with a tokenizer of `vocab`; or the reason why there are none.

    `capability`: as in `planned_setting`. Raises `Refusal`.
    """
    if profiled(spec.layout):
        return Unknown("A profile, which is measured before the first step, decides which blocks a rank has.")
    arch = spec.architecture(vocab)
    if arch is None:
        return Unknown("A module of your own: its sizes cannot be computed from the spec.")
    if arch.experts is not None:
        return Unknown("What a mixture of experts holds and sends depends on its router's choices.")
    return planned_setting(spec, arch, device, capability)


def planned_setting(
    spec: TrainSpec, arch: Architecture, device: DeviceKind, capability: Capability | None = None
) -> Setting:
    """The inputs of a memory plan for a run of `arch`, which may be a mixture of experts. Raises `Refusal`.

    `capability`: that of the GPUs where it is known. It decides options of the spec that are `auto`, which attention
    kernel runs, and how experts are multiplied.
    """
    facts = facts_of(arch)
    spec = choices(spec, facts, DeviceFacts(device, capability)).train
    batch = spec.check_facts(facts)
    compute, master = ELEMENT_BYTES[spec.precision.compute]
    adam = spec.optimizer.name == "adamw"
    return Setting(
        layout=spec.layout,
        batch=batch,
        decoder=sizes(arch, spec.data.seq_len, spec.layout.expert),
        seq_len=spec.data.seq_len,
        precision=spec.precision.compute,
        compute=compute,
        master=master,
        gradients=master if spec.precision.gradients == "fp32" else compute,
        moments=2 if adam else 1,
        counted=adam,
        memory_options=spec.memory_options,
        smoothing=spec.loss.label_smoothing > 0,
        z_loss=spec.loss.z_loss > 0,
        bucket_bytes=spec.overlap.bucket_bytes,
        prefetch=spec.overlap.prefetch,
        device=device,
        loss_chunk=spec.loss_chunk(batch, arch.vocab),
        snapshots=spec.snapshot.every != 0,
        packed=spec.data.is_packed,
        capability=capability,
        ends_apart=spec.ends_apart,
    )


def vocabulary(spec: TrainSpec, parameters: int) -> int | None:
    """The vocabulary of a model with this number of parameters, which is linear in it. None if no vocabulary fits. Raises `Refusal`."""
    if spec.model.vocab is not None:
        return spec.model.vocab
    few, more = spec.architecture(2), spec.architecture(3)
    if few is None or more is None:
        return None
    each = more.parameters - few.parameters
    if each == 0:  # the spec's model has its own vocabulary
        return few.vocab
    rest, left = divmod(parameters - few.parameters, each)
    return 2 + rest if left == 0 and rest >= 0 else None
