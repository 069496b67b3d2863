"""`PlannedMemory`, the `train.planned` part of a job spec: the memory plan of a module of the user's own. Imports no torch.

A control plane does not run users' code. The command line and the Python client dry-run such a module where it is, and send what they
find with the spec. It is its submitter's own: it is shown, and compared with what is measured, and nothing else depends on it.
"""

from typing import Any, Final

from pydantic import Field

from .spec_part import SpecPart

#: Larger numbers are cut to this one: 1 PiB.
MOST: Final = 2**50


class HeldBytes(SpecPart):
    """Bytes on the device at the peak of a step, by kind, on the rank that needs most."""

    parameters: int = Field(0, ge=0, le=MOST)
    gradients: int = Field(0, ge=0, le=MOST)
    optimizer: int = Field(0, ge=0, le=MOST)
    activations: int = Field(0, ge=0, le=MOST)
    logits: int = Field(0, ge=0, le=MOST)
    buffers: int = Field(0, ge=0, le=MOST)


class PlannedMemory(SpecPart):
    """What a dry run of a module of your own found. The command line and the Python client set it; one of another spec is left out."""

    of: str = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the options of `train` for which the dry run was made."
    )
    ranks: int = Field(ge=1, le=MOST, description="Number of ranks for which it was made.")
    parameters: int = Field(ge=0, le=MOST, description="Number of parameters of the module.")
    at_peak: HeldBytes
    host_bytes: int = Field(0, ge=0, le=MOST, description="Bytes of tensors in host memory, on that rank.")


def without_plan(document: Any) -> Any:
    """A spec as plain data, without a plan that came with it."""
    train = document.get("train") if isinstance(document, dict) else None
    if not isinstance(train, dict) or "planned" not in train:
        return document
    return {**document, "train": {name: value for name, value in train.items() if name != "planned"}}
