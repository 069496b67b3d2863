"""Secrets, without their values."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ...workers.messages.secret import SHORTEST
from .base import Timestamp, Value

#: Maximum number of characters.
LONGEST = 64 << 10


class SecretValue(BaseModel):
    """What a secret is set to."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    value: Annotated[str, StringConstraints(min_length=SHORTEST, max_length=LONGEST, pattern=r"^[^\x00]*$")] = Field(
        repr=False, description="Text of 8 characters or more. It is never returned."
    )


class Secret(Value):
    """A stored secret. Its value is never returned."""

    name: str
    actor: str = Field(description="Name of the user who set it last.")
    created_at: Timestamp
    updated_at: Timestamp


class Secrets(Value):
    """All secrets, by name."""

    items: list[Secret]
