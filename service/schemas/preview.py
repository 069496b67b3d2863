"""What a spec would run as."""

from pydantic import Field

from .base import Value
from .problem import FieldError


class Form(Value):
    """A layout that an elastic job may have; `layout` and `batch` in words."""

    data: int
    world_size: int
    layout: str
    batch: str


class Preview(Value):
    """What a spec would run as, if it were submitted now."""

    name: str
    layout: str = Field(description="The layout in words.")
    batch: str = Field(description="The batch maths in words.")
    world_size: int
    spares: int = Field(0, description="Warm spares, each on a device of its own.")
    global_batch: int = Field(description="Sequences per step: data × microbatches × micro_batch.")
    data: int
    microbatches: int
    micro_batch: int
    tokens_per_step: int
    tokens: int = Field(description="Of all steps.")
    parameters: int | None = Field(
        None,
        description="null where the API cannot count them: a module of your own, or files that only the workers see.",
    )
    forms: list[Form] = Field(default_factory=list, description="Of an elastic job, the largest first.")
    resume: str | None = Field(None, description="The checkpoint that `resume_from` means now.")
    warnings: list[FieldError] = Field(default_factory=list, description="Options of the spec that have no effect.")
