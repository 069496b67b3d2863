"""What parameter servers whose workers have clocks of their own may be combined with, beside what all parameter servers refuse.

Imports no torch.
"""

from .delayed_rules import SCALED
from .layout import Layout, Refusal, own_clocks


def check_own_clocks(layout: Layout, compute: str) -> None:
    """Refuse a precision whose factor all workers must change in the same step. Raises `Refusal`."""
    if own_clocks(layout) and compute in SCALED:
        raise Refusal(
            "precision",
            f"{compute} changes its scale by what all workers see in a step, and here each is in a step of its own.",
            "Set precision to bf16 or fp32, or layout.parameter_server.mode to sync, without a bound.",
        )
