"""Memory and traffic of a job's ranks."""

from pydantic import Field

from .base import Value


class Held(Value):
    """What a rank holds of one kind, in bytes: measured beside the formula."""

    kind: str = Field(description="`parameters`, `gradients`, `optimizer`, `activations`; on CUDA `allocated`.")
    least: float | None = Field(description="Measured, the least of all ranks.")
    most: float | None = Field(description="Measured, the most of all ranks.")
    formula: str | None = Field(description="In words: Ψ parameters of the rank.")
    low: float | None = Field(description="What the formula says, the least of all ranks or its lower bound.")
    high: float | None = Field(description="What the formula says, the most of all ranks or its upper bound.")
    reason: str | None = Field(description="Why there is no formula.")


class Flow(Value):
    """What rank 0 sends in a step of one collective on one mesh axis: logical traffic, whatever the backend does."""

    axis: str
    collective: str
    calls: int | None = Field(description="Measured, as are `elements` and `bytes`.")
    elements: float | None
    bytes: float | None
    formula: str | None = Field(description="In words.")
    formula_elements: float | None
    formula_bytes: float | None
    reason: str | None = Field(description="Why there is no formula.")


class JobResources(Value):
    """Memory and traffic of a job, by formula and as its newest probe measured them."""

    layout: str
    step: int | None = Field(description="The probed step; null before the first.")
    memory: list[Held]
    traffic: list[Flow]
    reason: str | None = Field(description="Why there is no formula at all.")
