"""What a dry run does not cover: options that need values, which fake tensors do not have, and what ranks ask each other.

Imports no torch.
"""

from ...strategies.layout import Refusal
from ..spec import TrainSpec


def unsupported(train: TrainSpec) -> Refusal | None:
    """Why there is no dry run of this spec, whatever its model; None: there is one."""
    for field, given in (("precision", train.precision.compute == "fp8"), ("compile", train.compile is True)):
        if given:
            return Refusal(field, "A dry run covers neither fp8 nor compile yet.", f"Leave out {field}.")
    if train.data.is_own:
        message = "A dry run has token ids alone, and a source of your own has other samples."
        return Refusal("data.source", message, "Train a few steps: a probe measures memory and traffic.")
    if train.layout.servers:
        message = "A dry run plays GPUs, and parameter servers run on CPUs."
        return Refusal("layout.parameter_server", message, "Train a few steps: a probe measures memory and traffic.")
    if train.model.import_ is not None and train.layout.pipeline > 1:
        message = "A dry run has no other ranks, from which each stage of a module of your own learns what it gets."
        return Refusal(
            "layout.pipeline", message, "Set it to 1, or train a few steps: a probe measures memory and traffic."
        )
    return None
