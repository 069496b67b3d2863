"""What packed documents may be combined with. Imports no torch.

Masks by document are proved equal to documents that are trained one by one, for every axis and context method. What has no such
proof is refused here, from numbers alone.
"""

from collections.abc import Iterator
from typing import Final

from .layout import Layout, ModelFacts, Refusal
from .memory_options import MemoryOptions

_Found = Iterator[tuple[str, str, str]]

#: Scores of all heads and sequences that exist at a time under a mask by document: 16 MiB in fp32. The memory plan counts them.
CHUNK: Final = 1 << 22


def check_packed(layout: Layout, memory_options: MemoryOptions, facts: ModelFacts, compute: str) -> None:
    """Refuse what does not work with packed documents. Raises `Refusal`, whose other remedy is always joined documents."""
    for field, message, remedy in (*_model(facts), *_layout(layout), *_options(memory_options, compute)):
        raise Refusal(field, f"{message}.", f"{remedy}, or set data.documents to joined.")


def _model(facts: ModelFacts) -> _Found:
    if facts.layers is None:
        yield (
            "model.import",
            "a module of your own does not receive where documents start, so its attention would cross their ends",
            "Use a model family",
        )
    if facts.experts is not None:
        yield (
            "model.family",
            "the losses that balance experts are means over all tokens of a sequence, and packed documents do not count all targets",
            "Use another family",
        )


def _layout(layout: Layout) -> _Found:
    if layout.tensor_shape is not None:
        yield (
            "layout.tensor",
            "the ranks of a grid have sequences of their own, and masks by document are not proved there",
            "Set layout.tensor to a number",
        )
    if layout.servers:
        yield (
            "layout.parameter_server",
            "servers update before the targets that count are known on all workers",
            "Leave layout.parameter_server out",
        )
    if layout.versions > 1:
        yield (
            "layout.schedule",
            f"the {layout.schedule} schedule adds gradients of two steps, which have different numbers of targets that count",
            "Set layout.schedule to 1f1b",
        )


def _options(memory_options: MemoryOptions, compute: str) -> _Found:
    if memory_options.compile:
        yield "compile", "masks by document are not proved in compiled blocks", "Set compile to false"
    if compute == "fp8":
        yield "precision", "masks by document are not proved with fp8", "Set precision to bf16"
