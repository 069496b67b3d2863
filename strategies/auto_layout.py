"""A layout that the layout advisor chooses: for how many ranks, and what it was chosen for. Imports no torch.

`layout: auto` is decided once, when a job is submitted. The stored layout has the degrees that were chosen, and this beside them.
"""

from pydantic import BaseModel, ConfigDict, Field

#: The most ranks for which layouts are searched.
MOST_RANKS = 4096


class AutoLayout(BaseModel):
    """What is asked of the layout advisor and, once it has chosen a layout, for what devices and how fast it estimates it to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: int | None = Field(
        None,
        ge=1,
        le=MOST_RANKS,
        description="Number of ranks. null: one for each GPU of the cluster or, on CPUs, for each core.",
    )
    devices: str | None = Field(
        None,
        max_length=100,
        pattern=r"^[A-Za-z0-9 ×._-]*$",
        description="The devices that the layout was chosen for, such as `8 × H100`. Written together with `step_s`.",
    )
    step_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Predicted seconds of a step. Written when the layout is chosen. A layout that has it is never chosen again.",
    )

    @property
    def undecided(self) -> bool:
        """Whether no layout has been chosen yet."""
        return self.step_s is None
