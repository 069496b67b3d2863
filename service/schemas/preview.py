"""What a spec would run as, without a submission."""

from pydantic import Field

from .base import Value
from .memory_plan import MemoryPlan
from .problem import FieldError


class Form(Value):
    """A layout that an elastic job may run with. `layout` and `batch` are text."""

    data: int
    world_size: int
    layout: str
    batch: str


class Preview(Value):
    """What a spec would run as if it were submitted now."""

    name: str
    layout: str = Field(description="The parallel layout as text.")
    batch: str = Field(description="How the global batch is split, as text.")
    world_size: int
    spares: int = Field(0, description="Number of hot spares, each on its own device.")
    global_batch: int = Field(description="Sequences per step: data × microbatches × micro_batch.")
    data: int
    microbatches: int
    micro_batch: int
    tokens_per_step: int
    tokens: int = Field(description="Tokens of all steps together.")
    parameters: int | None = Field(
        None,
        description="Number of parameters; null for a custom module, or if only the workers can read the model's files.",
    )
    precision: str = Field(description="The dtype of computation on the devices that the job would get now.")
    compile: bool = Field(description="Whether blocks would be compiled on them.")
    choices: list[str] = Field(
        default_factory=list, description="For each option that is `auto` in the spec: its value, and why."
    )
    memory: MemoryPlan | None = Field(
        None, description="Memory plan of a rank; null if the model's sizes are unknown before it runs."
    )
    forms: list[Form] = Field(
        default_factory=list, description="Layouts that an elastic job may run with, the largest first."
    )
    resume: str | None = Field(None, description="Path of the checkpoint that `resume_from` resolves to now.")
    warnings: list[FieldError] = Field(default_factory=list, description="Options of the spec that have no effect.")
