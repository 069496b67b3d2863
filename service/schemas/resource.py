"""Memory use and communication volume of a job's ranks."""

from pydantic import Field

from ...strategies.cost.plan import Source
from .base import Value


class MemoryUsage(Value):
    """Memory of one kind per rank, in bytes: measured, and by the cost model."""

    kind: str = Field(
        description="Kind of memory: `parameters`, `gradients`, `optimizer`, `activations`, `logits`, `buffers`, `workspace`; "
        "on CUDA also `allocated`."
    )
    least: float | None = Field(description="Smallest measured value over all ranks.")
    most: float | None = Field(description="Largest measured value over all ranks.")
    formula: str | None = Field(
        description="Formula of the cost model as text; Ψ is the number of parameters of the rank."
    )
    low: float | None = Field(description="Smallest estimate over all ranks, or the lower bound.")
    high: float | None = Field(description="Largest estimate over all ranks, or the upper bound.")
    reason: str | None = Field(description="Why the cost model has no formula for this; null if it has one.")
    planned: float | None = Field(
        None, description="Planned bytes at the peak of a step, on the rank that needs most; `allocated`: of all kinds."
    )


class CommVolume(Value):
    """What rank 0 sends per step with one collective on one mesh axis. Counts logical traffic, independent of the backend."""

    axis: str
    collective: str
    calls: int | None = Field(description="Measured number of calls.")
    elements: float | None = Field(description="Measured number of elements.")
    bytes: float | None = Field(description="Measured bytes.")
    formula: str | None = Field(description="Formula of the cost model as text.")
    formula_elements: float | None = Field(description="Estimated number of elements.")
    formula_bytes: float | None = Field(description="Estimated bytes.")
    reason: str | None = Field(description="Why the cost model has no formula for this; null if it has one.")


class ResourceReport(Value):
    """Memory use and communication volume of a job: by the cost model, and as its newest probe measured them."""

    layout: str
    step: int | None = Field(description="Step of the newest probe; null before the first one.")
    memory: list[MemoryUsage]
    traffic: list[CommVolume]
    off_plan: str | None = Field(
        None,
        description="By how much the measured peak is above or below the plan, if by more than 5%. Only GPUs measure a peak.",
    )
    planned_by: Source | None = Field(
        None, description="`formulas`, or the submitter's own `dry run` of a module; null: the job has no plan."
    )
    reason: str | None = Field(description="Why the cost model does not cover this job; null if it does.")
