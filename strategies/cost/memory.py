"""Bytes that one rank holds, by formula: parameters, gradients, optimizer state, activations. Imports no torch.

Ψ is the number of parameters that the rank has a part of (its stages, its shard over the tensor axis), N the replicas over which
ZeRO shards, c the bytes of an element in the compute dtype (2 in mixed precision), m of one that is kept (4), and g of a sum of
gradients (m or c). Rows that N does not divide are padded to equal chunks. The tensor axis pads nothing: if its degree t does not
divide the vocabulary V, the last rank has fewer rows.

| stage | parameters | gradients | optimizer |
|---|---|---|---|
| 0 | cΨ | gΨ | 2mΨ, and mΨ of values if c ≠ m |
| 1 | cΨ | gΨ | 3mΨ/N |
| 2 | cΨ | gΨ/N and the buckets in transit | 3mΨ/N |
| 3 | mΨ/N | mΨ/N | 2mΨ/N |
| 0 under 2BW | 2cΨ | gΨ on the first stage, 2gΨ on the others | as 0 |
| 0 under PipeDream, rank i of p | (p − i)cΨ | gΨ | as 0 |
| 0 under PipeDream with vertical sync | pcΨ | gΨ | as 0 |

`parameter_server.py` has the table of workers and servers.

Activations are those kept at the beginning of the backward pass (`activations.py`); what a recomputed block keeps temporarily is
extra. Tables and scales of a few bytes per token are left out.

With c = g = 2 and m = 4 these are the 16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N and 16Ψ/N of Rajbhandari et al. (1910.02054, section 5); with g =
4, the default, 18Ψ, 6Ψ + 12Ψ/N, 2Ψ + 16Ψ/N and 16Ψ/N.
"""

from collections.abc import Callable

from ..delayed_rules import versions_of
from ..layout import divides_hidden
from . import parameter_server
from .block_memory import block_bytes
from .estimate import Formula, Setting, Unknown
from .logits import loss_kept
from .model_shape import Weight, chunks, elements, last_chunks

Answer = Formula | Unknown
#: Bytes of the parameters that a rank holds.
Size = Callable[[list[Weight]], float]


def memory(setting: Setting) -> dict[str, Answer]:
    """Kind → its formula."""
    if setting.tied_ends:
        shared = Unknown("The two ends of a pipeline share the tied embedding.")
        return dict.fromkeys(("parameters", "gradients", "optimizer", "activations"), shared)
    return {
        "parameters": _parameters(setting),
        "gradients": _gradients(setting),
        "optimizer": _optimizer(setting),
        "activations": _activations(setting),
    }


def state_bytes(stage: int, parameters: int, replicas: int, gradients: int = 4) -> float:
    """Parameters, gradients and optimizer state together in mixed precision with AdamW, for `gradients` of 4 or 2 bytes."""
    whole, cut = ((14 + gradients, 0), (2 + gradients, 12), (2, 12 + gradients), (0, 16))[stage]
    return whole * parameters + cut * parameters / replicas


def _over_ranks(setting: Setting, words: str, most: Size, least: Size | None = None) -> Formula:
    """The formula over all ranks. `most` and `least` return the bytes of the largest and the smallest ZeRO shard of a rank's weights."""
    layout, tensor = setting.layout, sorted({0, setting.layout.tensor - 1})  # tensor ranks with the most and the least
    held = [setting.decoder.held(layout, rank, part) for rank in range(layout.pipeline) for part in tensor]
    return Formula(words + _of_what(setting), min(map(least or most, held)), max(map(most, held)))


def _of_what(setting: Setting) -> str:
    parts = [f"tensor {setting.layout.tensor_shape or setting.layout.tensor}"] * (setting.layout.tensor > 1)
    parts += [f"pipeline {setting.layout.pipeline}"] * (setting.layout.pipeline > 1)
    return f"; Ψ: a rank's share over {' × '.join(parts)}" if parts else ""


def _parameters(setting: Setting) -> Answer:
    if setting.memory_options.offload.parameters:
        on_disk = setting.memory_options.offload.to == "disk"
        return Unknown("Parameters are on a disk." if on_disk else "Parameters are in host memory.")
    c, m, n = setting.compute, setting.master, setting.cut
    if setting.layout.zero == 3:
        return _over_ranks(setting, f"{m}Ψ/{n}", lambda held: m * chunks(held, n))
    if setting.layout.servers:
        return Formula(f"{c}Ψ on a worker, none on a server", 0, c * parameter_server.pushed(setting))
    if setting.layout.versions > 1:
        return _versions(setting)
    return _over_ranks(setting, f"{c}Ψ", lambda held: c * elements(held))


def _versions(setting: Setting) -> Answer:
    """The versions of the weights of every rank of the pipeline."""
    layout, c = setting.layout, setting.compute
    kept = [c * versions_of(layout, rank) for rank in range(layout.pipeline)]
    sizes = [each * elements(setting.decoder.held(layout, rank)) for rank, each in enumerate(kept)]
    words = f"{kept[0]}Ψ" if len(set(kept)) == 1 else f"{kept[0]}Ψ on the first stage to {kept[-1]}Ψ on the last"
    return Formula(words + _of_what(setting), min(sizes), max(sizes))


def _gradients(setting: Setting) -> Answer:
    c, m, g = setting.compute, setting.master, setting.gradients
    n, zero = setting.cut, setting.layout.zero
    if zero == 3:
        return _over_ranks(
            setting, f"{m}Ψ/{n}", lambda held: m * chunks(held, n), lambda held: m * last_chunks(held, n)
        )
    if setting.layout.servers:
        sums = [m * sum(sizes) for sizes in parameter_server.keys(setting)]
        worker = g * parameter_server.pushed(setting)
        return Formula(f"{g}Ψ on a worker, {m}Ψ_s on a server", min(worker, *sums), max(worker, *sums))
    if setting.sums_two_steps:
        return _gradients_of_two_steps(setting)
    if zero == 0:
        return _over_ranks(setting, f"{g}Ψ", lambda held: g * elements(held))
    if setting.layout.pipeline > 1 and g == c:
        return Unknown(f"ZeRO-{zero} fills buckets with gradients one after the other in a stage's last pass.")
    if not setting.each_microbatch:
        return _over_ranks(setting, f"{g}Ψ", lambda held: g * n * chunks(held, n))
    own = _over_ranks(setting, "", lambda held: g * chunks(held, n))
    whole = _over_ranks(setting, "", lambda held: setting.sent * n * chunks(held, n))
    largest = max(weight.chunk(n) * n * setting.sent for weight in setting.decoder.held(setting.layout, 0))
    on_the_way = (setting.prefetch + 1) * max(setting.bucket_bytes, largest)
    words = f"{g}Ψ/{n}, and at most {setting.prefetch + 1} buckets in transit{_of_what(setting)}"
    return Formula(words, own.low, min(own.high + on_the_way, own.high + whole.high))


def _gradients_of_two_steps(setting: Setting) -> Answer:
    """2BW's sums of the step, and on all ranks but the pipeline's first those of the next step."""
    g, layout = setting.gradients, setting.layout
    sums = [(1 + (rank > 0)) * g * elements(setting.decoder.held(layout, rank)) for rank in range(layout.pipeline)]
    return Formula(f"{g}Ψ on the first stage, {2 * g}Ψ on the others{_of_what(setting)}", min(sums), max(sums))


def _optimizer(setting: Setting) -> Answer:
    if setting.memory_options.offload.optimizer or setting.memory_options.offload.parameters:
        where = "on a disk" if setting.memory_options.offload.to == "disk" else "in host memory"
        return Unknown(f"Optimizer state is {where}, in part or whole.")
    m, n, zero = setting.master, setting.cut, setting.layout.zero
    values = m if zero in (1, 2) or (zero == 0 and setting.compute != m) else 0
    moments = setting.moments * m
    if setting.layout.servers:
        states = [parameter_server.state_bytes(setting, sizes) for sizes in parameter_server.keys(setting)]
        return Formula(f"none on a worker, {m + moments}Ψ_s on a server", 0, max(states))
    if zero == 0:
        size = lambda held: (values + moments) * elements(held) + _counts(setting, held)  # noqa: E731
        return _over_ranks(setting, f"{values + moments}Ψ", size)
    most = lambda held: (values + moments) * chunks(held, n) + _counts(setting, held)  # noqa: E731
    least = lambda held: values * chunks(held, n) + moments * last_chunks(held, n)  # noqa: E731
    return _over_ranks(setting, f"{values + moments}Ψ/{n}", most, least)


def _counts(setting: Setting, held: list[Weight]) -> int:
    """Bytes of the update counters: one number per parameter."""
    return 4 * len(held) if setting.counted else 0


def _activations(setting: Setting) -> Answer:
    reason = _why_not_activations(setting)
    if reason:
        return Unknown(reason)
    blocks, tokens, recompute = setting.decoder.layers, setting.tokens, setting.memory_options.recompute
    again = -(-blocks // recompute.every) if recompute.mode != "none" else 0
    held = again * block_bytes(setting, recompute.mode) + (blocks - again) * block_bytes(setting, "none")
    most, least = (_end_bytes(setting, rank) for rank in (0, setting.layout.tensor - 1))
    words = f"{tokens} tokens × ({blocks} blocks × {held / blocks:.0f} bytes + {most:.0f} of norm, head and loss)"
    low = 0 if setting.layout.servers else tokens * (held + least)  # a server has none
    return Formula(words, low, tokens * (held + most))


def _why_not_activations(setting: Setting) -> str | None:
    layout, memory_options = setting.layout, setting.memory_options
    reasons = {
        "The pipeline's schedule determines how many micro-batches are kept at a time.": layout.pipeline > 1,
        "Gathered parameters count among what ZeRO-3 keeps.": layout.zero == 3,
        "There is no formula under context parallelism.": layout.context > 1,
        "A compiled block chooses by itself what it keeps.": memory_options.compile,
        "What blocks keep is in host memory.": memory_options.offload.activations,
        "There is no formula for fp8, which keeps scaled copies.": setting.precision == "fp8",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _end_bytes(setting: Setting, tensor_rank: int) -> float:
    """Bytes per token on a tensor rank: the inputs of the last norm and of the head, and what the loss keeps.

    A loss in chunks keeps the gradient of the head's input instead of that input.
    """
    layout = setting.layout
    outside = setting.compute * 2 * setting.decoder.dim / (layout.tensor if divides_hidden(layout) else 1)
    return outside + loss_kept(setting, tensor_rank)
