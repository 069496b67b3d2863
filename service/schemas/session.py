"""Sign-in of browsers."""

from pydantic import BaseModel, ConfigDict, Field

from .base import Value


class SignIn(BaseModel):
    """Credentials of a browser: either a token or a code."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    token: str | None = Field(None, max_length=1024, description="The access token.")
    code: str | None = Field(None, max_length=1024, description="One-time code from `shardyard open`.")


class Session(Value):
    """A browser's session. The response sets its cookie."""

    seconds: int = Field(description="Seconds until the session ends.")


class SignInCode(Value):
    """A code that signs a browser in once. It goes into the fragment of a page's address: `#code=…`."""

    code: str
    seconds: int = Field(description="Seconds until the code expires.")
