"""What a schedule with delayed gradients (2BW, PipeDream) may be combined with. Imports no torch.

Several versions of whole weights and graphs that outlive an update are proved equal to a serial loop for stages and replicas. All other
axes and options are refused here, from numbers alone, until they have such a proof.
"""

from collections.abc import Iterator

from .layout import Layout, ModelFacts, Refusal
from .memory_options import MemoryOptions

_Found = Iterator[tuple[str, str, str]]

#: Precisions whose factor may change between a micro-batch's forward pass and the update that uses its gradient.
SCALED = ("fp16", "fp8")


def versions_of(layout: Layout, place: int) -> int:
    """The versions of its weights that the rank at `place` (0-based) of its pipeline holds.

    2 under 2BW, p − place under PipeDream, p with vertical sync.
    """
    by_stage = layout.schedule == "pipedream" and not layout.vertical_sync
    return layout.versions - (place if by_stage else 0)


def alternates(layout: Layout, microbatches: int, ends_apart: bool) -> bool:
    """Whether 2BW runs the order of its paper, in which rank i (0-based, of p) holds p − i micro-batches and one sum of gradients.

    In that order the ranks end a step one after the other. Where they must end it together, it has a bubble of p − 1 backward passes.
    So then another order runs, which needs 2(p − 1) micro-batches, unless a step has fewer.
    """
    return layout.schedule == "2bw" and (ends_apart or microbatches < 2 * (layout.pipeline - 1))


def check_delayed(layout: Layout, memory_options: MemoryOptions, facts: ModelFacts, compute: str) -> None:
    """Refuse what does not work with a delayed schedule. Raises `Refusal`, whose other remedy is always 1F1B."""
    if layout.versions == 1:
        return
    problems = (*_axes(layout), *_options(memory_options), *_model(facts), *_precision(compute))
    for field, message, remedy in problems:
        raise Refusal(field, f"{message}.", f"{remedy}, or set layout.schedule to 1f1b.")


def _axes(layout: Layout) -> _Found:
    degrees = {**layout.degrees, "expert": layout.expert}
    for axis in ("tensor", "context", "expert"):
        if degrees[axis] > 1:
            yield (
                f"layout.{axis}",
                f"{layout.schedule} keeps versions of whole weights, and {axis} {degrees[axis]} divides them or their passes",
                f"Set layout.{axis} to 1",
            )
    if layout.zero:
        yield (
            "layout.zero",
            f"the {layout.schedule} schedule keeps versions of whole weights, which ZeRO-{layout.zero} shards",
            "Set layout.zero to 0",
        )


def _options(memory_options: MemoryOptions) -> _Found:
    offload = memory_options.offload
    for field, given, default in (
        ("offload.optimizer", offload.optimizer, "0"),
        ("offload.parameters", offload.parameters, "false"),
        ("offload.activations", offload.activations, "false"),
        ("compile", memory_options.compile, "false"),
    ):
        if given:
            yield (
                field,
                "a schedule with delayed gradients changes the weights' memory between passes, which this option does not follow",
                f"Set {field} to {default}",
            )


def _model(facts: ModelFacts) -> _Found:
    if facts.layers is None:
        yield (
            "model.import",
            "a schedule with delayed gradients needs to know what stages pass on before they run, and a module of your own does not say",
            "Use a model family",
        )
    if facts.experts is not None:
        yield (
            "model.family",
            "a schedule with delayed gradients runs passes of two steps in one, and experts count their tokens by step",
            "Use another family",
        )


def _precision(compute: str) -> _Found:
    if compute in SCALED:
        yield (
            "precision",
            f"a schedule with delayed gradients uses a gradient a step or more after its pass, and {compute} changes its scale in between",
            "Set precision to bf16 or fp32",
        )
