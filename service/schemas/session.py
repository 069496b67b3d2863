"""How a browser signs in."""

from pydantic import BaseModel, ConfigDict, Field

from .base import Value


class SignIn(BaseModel):
    """What signs a browser in: one of the two."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    token: str | None = Field(None, max_length=1024, description="The access token.")
    code: str | None = Field(None, max_length=1024, description="Of `shardyard open`; good once.")


class Session(Value):
    """A browser's session; its cookie comes with the answer."""

    seconds: int = Field(description="Until it ends.")


class SignInCode(Value):
    """A code that signs a browser in once, in the fragment of a page's address: `#code=…`."""

    code: str
    seconds: int = Field(description="Until it expires.")
