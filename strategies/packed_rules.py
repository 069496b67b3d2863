"""What packed documents may be combined with. Imports no torch.

Masks by document are proved equal to documents that are trained one by one, for every axis and context method, every schedule, in
compiled blocks, with experts, and in fp8. What cannot be is refused here, from numbers alone.
"""

from typing import Final

from .layout import Layout, Refusal, own_clocks

#: Scores of all heads and sequences that exist at a time under a mask by document: 16 MiB in fp32. The memory plan counts them.
CHUNK: Final = 1 << 22


def check_packed(layout: Layout) -> None:
    """Raises `Refusal` for what does not work with packed documents."""
    if own_clocks(layout):
        raise Refusal(
            "layout.parameter_server",
            "the mean is over the targets that count on all workers, and with clocks of their own they push before others have counted.",
            "Set layout.parameter_server.mode to sync, without a bound, or set data.documents to joined.",
        )
