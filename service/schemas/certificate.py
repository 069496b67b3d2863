"""The certificate of a layout: what was trained twice, how far the numbers differ, and what was moved, signed."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from .base import Timestamp, Value
from .resource import CommVolume, MemoryUsage

#: What the one process did besides training.
Extra = Literal["rounds the same blocks", "takes its gradients as late"]


class _Finite(Value):
    """Its numbers are finite: JSON has no others, so a stored one could not be read."""

    model_config = ConfigDict(allow_inf_nan=False)


class NumbersCompared(_Finite):
    """The largest difference between the layout and one process, of one kind of number."""

    what: str
    compared: int = Field(description="Count of numbers.")
    difference: float | None = Field(description="The largest difference; null if a number is missing or not finite.")
    bound: float = Field(description="The largest difference that counts as equal; relative for losses and norms.")
    where: str = Field(description="Where the largest difference is, such as the name of a parameter.")
    equal: bool


class Signature(Value):
    """An Ed25519 signature of everything else in the certificate, as canonical JSON."""

    key: str = Field(description="Public key, as base64.")
    value: str = Field(description="The signature, as base64.")


class Reference(_Finite):
    """What the one process did besides training, because the layout does it too, and what that changes."""

    extra: Extra
    losses_without: list[float] = Field(description="Of each step, in one process that only trains.")
    difference: float | None = Field(
        description="The largest relative difference of the layout's losses from these; null if one is not finite."
    )


class Certificate(_Finite):
    """A training on a layout and the same in one process, in float64, number by number."""

    format: Literal["shardyard/certificate/v1"] = "shardyard/certificate/v1"
    name: str
    made_at: float = Field(ge=0, lt=253402300800, description="Unix time in seconds, before the year 10000.")
    equal: bool = Field(description="Whether all numbers are equal within their bounds.")
    layout: str
    world_size: int
    steps: int
    parameters: int | None
    losses: list[float] = Field(description="Of each step, on the layout.")
    losses_alone: list[float] = Field(description="Of each step, in one process.")
    reference: Reference | None = Field(
        None, description="What that process did besides training: rounding or delays of the layout; null if nothing."
    )
    numbers: list[NumbersCompared]
    traffic: list[CommVolume] = Field(description="What rank 0 sent in step 2, counted and by formula.")
    memory: list[MemoryUsage] = Field(description="Memory of the ranks in step 2, measured and by formula.")
    changes: list[str] = Field(description="What was made smaller, such as `model.layers: 32 → 4`.")
    given: dict[str, Any] = Field(description="The train spec as it was given.")
    trained: dict[str, Any] = Field(description="The train spec as it was trained.")
    code: str | None = Field(
        None,
        description="SHA-256 of the names and contents of the Python files in `model.code`; null if the spec has no such folder.",
    )
    versions: dict[str, str] = Field(description="Of Shardyard, torch and Python.")
    machine: str
    signature: Signature | None = None


class JobCertificate(Value):
    """What a job's certificate says, in short."""

    equal: bool = Field(description="Whether the layout and one process computed the same.")
    layout: str = Field(description="The layout that was trained, of fewer ranks than the job's if that has many.")
    extra: Extra | None = Field(
        None,
        description="What the one process did besides training; null if nothing, or if this version cannot read the job's layout.",
    )
    made_at: Timestamp
    key: str = Field(description="Fingerprint of the key that signed it.")
    actor: str = Field(description="Name of the user who attached it to the job.")
