"""What every part of a spec shares: unknown keys are refused, values are frozen. Imports no torch."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]


class SpecPart(BaseModel):
    """A part of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
