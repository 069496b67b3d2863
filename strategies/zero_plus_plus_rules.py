"""What ZeRO++ may be combined with. Imports no torch."""

from collections.abc import Iterator

from .layout import Layout, ModelFacts, Refusal, divisors
from .memory_options import MemoryOptions
from .zero_plus_plus import ZeroPlusPlus

_Found = Iterator[tuple[str, str, str]]


def check_zero_plus_plus(layout: Layout, memory_options: MemoryOptions, facts: ModelFacts, compute: str) -> None:
    """Refuse what does not work with ZeRO++, or has no proof. Raises `Refusal`."""
    given = layout.zero_plus_plus
    if given is None:
        return
    problems = (
        *_stage(layout, given),
        *_groups(layout, given),
        *_axes(layout, given),
        *_others(memory_options, facts),
        *_precision(given, compute),
    )
    for field, message, remedy in problems:
        raise Refusal(field, f"{message}.", f"{remedy}.")


def _stage(layout: Layout, given: ZeroPlusPlus) -> _Found:
    if not layout.zero:
        yield (
            "layout.zero",
            "ZeRO++ changes what ZeRO sends, and layout.zero is 0",
            "Set layout.zero to 3 (to 1 or 2 for gradients alone), or leave layout.zero_plus_plus out",
        )
    for option in ("weights", "secondary"):
        if layout.zero < 3 and getattr(given, option):
            yield (
                f"layout.zero_plus_plus.{option}",
                f"only ZeRO-3 gathers weights in each pass, and layout.zero is {layout.zero}",
                f"Set layout.zero to 3, or leave {option} out",
            )


def _groups(layout: Layout, given: ZeroPlusPlus) -> _Found:
    """Groups of equal size inside those that share a parameter, and smaller."""
    ranks = layout.shard or layout.data * layout.context
    legal = [d for d in divisors(ranks) if 1 < d < ranks]
    for option, size in (("secondary", given.secondary), ("node", given.node)):
        if size is not None and size not in legal:
            yield (
                f"layout.zero_plus_plus.{option}",
                f"{ranks} replicas, over which ZeRO shards, do not fall into two or more groups of {size}",
                f"Use one of {legal}, or leave {option} out" if legal else f"Leave {option} out",
            )


def _axes(layout: Layout, given: ZeroPlusPlus) -> _Found:
    if given.secondary and layout.pipeline > 1:
        yield (
            "layout.zero_plus_plus.secondary",
            "under a pipeline weights stay gathered from the first pass of a step to its last, and no second gather needs a second shard",
            "Leave secondary out, or set layout.pipeline to 1",
        )
    if layout.tensor_shape is not None:
        yield (
            "layout.tensor",
            "quantised gradients are not proved equal to a textbook on a grid of ranks",
            "Set layout.tensor to a number, or leave layout.zero_plus_plus out",
        )


def _others(memory_options: MemoryOptions, facts: ModelFacts) -> _Found:
    if memory_options.offload.parameters:
        yield (
            "offload.parameters",
            "with parameters in host memory the device holds one gathered block, and ZeRO++ more",
            "Set offload.parameters to false, or leave layout.zero_plus_plus out",
        )
    if facts.experts is not None:
        yield (
            "model.family",
            "weights and gradients of experts are not proved equal to a textbook in ZeRO++'s messages",
            "Use a family without experts, or leave layout.zero_plus_plus out",
        )


def _precision(given: ZeroPlusPlus, compute: str) -> _Found:
    if given.weights and compute == "fp8":
        yield (
            "precision",
            "fp8 would round weights that are rounded already, by other scales",
            "Set precision to bf16, or leave layout.zero_plus_plus.weights out",
        )
