"""What every part of a spec shares: unknown keys are refused, values are frozen. Imports no torch."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

#: No control characters, line breaks or characters that change the direction of text: it is shown beside other text.
PLAIN_TEXT = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
#: A path, or an address.
PathText = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=PLAIN_TEXT)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class SpecPart(BaseModel):
    """A part of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
