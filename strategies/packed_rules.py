"""What packed documents may be combined with. Imports no torch.

Masks by document are proved equal to documents that are trained one by one, for every axis and context method, in compiled blocks, with
experts, and in fp8. What has no such proof is refused here, from numbers alone.
"""

from collections.abc import Iterator
from typing import Final

from .layout import Layout, Refusal

#: Scores of all heads and sequences that exist at a time under a mask by document: 16 MiB in fp32. The memory plan counts them.
CHUNK: Final = 1 << 22


def check_packed(layout: Layout) -> None:
    """Refuse what does not work with packed documents. Raises `Refusal`, whose other remedy is always joined documents."""
    for field, message, remedy in _refused(layout):
        raise Refusal(field, f"{message}.", f"{remedy}, or set data.documents to joined.")


def _refused(layout: Layout) -> Iterator[tuple[str, str, str]]:
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
