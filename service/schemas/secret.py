"""Secrets, without their values."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from ...workers.messages.secret import SHORTEST
from .base import Timestamp, Value

#: Maximum number of bytes in UTF-8.
LONGEST: Final = 64 << 10


class SecretValue(BaseModel):
    """What a secret is set to."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    value: Annotated[str, StringConstraints(min_length=SHORTEST, max_length=LONGEST, pattern=r"^[^\x00]*$")] = Field(
        repr=False, description="Text of 8 characters to 65,536 bytes. It is never returned."
    )

    @field_validator("value")
    @classmethod
    def _is_short(cls, value: str) -> str:
        if len(value.encode()) > LONGEST:
            raise ValueError(f"The text has more than {LONGEST:,} bytes in UTF-8.")
        return value


class Secret(Value):
    """A stored secret. Its value is never returned."""

    name: str
    actor: str = Field(description="Name of the user who set it last.")
    created_at: Timestamp
    updated_at: Timestamp


class Secrets(Value):
    """All secrets, by name."""

    items: list[Secret]
