"""What a spec would run as, without a submission."""

from pydantic import Field

from .base import Value
from .memory_plan import MemoryPlan
from .problem import FieldError


class ElasticLayout(Value):
    """A layout that an elastic job may run with. `layout` and `batch` are text."""

    data: int
    world_size: int
    layout: str
    batch: str


class Preview(Value):
    """What a spec would run as if it were submitted now."""

    name: str
    layout: str = Field(description="The parallel layout as text; of a command, its number of ranks.")
    layout_choice: str | None = Field(
        None,
        description="For which devices the layout advisor chose the layout, and the predicted time of a step; null if the spec says the "
        "layout.",
    )
    batch: str = Field(description="How the global batch is split, as text; empty for a command.")
    world_size: int
    spares: int = Field(0, description="Number of hot spares, each on its own device.")
    command: list[str] | None = Field(None, description="The program and its arguments; null for a training job.")
    global_batch: int | None = Field(
        None,
        description="Sequences per step: data × microbatches × micro_batch. This and what follows: null for a command.",
    )
    data: int | None = None
    microbatches: int | None = None
    micro_batch: int | None = None
    tokens_per_step: int | None = None
    tokens: int | None = Field(None, description="Tokens of all steps together.")
    parameters: int | None = Field(
        None,
        description="Number of parameters; null for a custom module without `train.planned`, or if only the workers can read the model's "
        "files.",
    )
    precision: str | None = Field(
        None, description="The dtype of computation on the devices that the job would get now."
    )
    compile: bool | None = Field(None, description="Whether blocks would be compiled on them.")
    choices: list[str] = Field(
        default_factory=list, description="For each option that is `auto` in the spec: its value, and why."
    )
    memory: MemoryPlan | None = Field(
        None, description="Memory plan of a rank; null if the model's sizes are unknown before it runs."
    )
    needs_dry_run: bool = Field(
        False,
        description="Whether the model is a module of the user's own that only a dry run can plan, where its code is: see `train.planned`.",
    )
    elastic_layouts: list[ElasticLayout] = Field(
        default_factory=list, description="Layouts that an elastic job may run with, the largest first."
    )
    resume: str | None = Field(None, description="Path of the checkpoint that `resume_from` resolves to now.")
    warnings: list[FieldError] = Field(
        default_factory=list,
        description="Warnings: options that have no effect or that change the optimisation, and commands that may not do what is meant.",
    )
