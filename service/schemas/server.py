"""What a control plane is: its version, its templates, its health."""

from pydantic import Field

from .base import Value


class Server(Value):
    """What this control plane is, and what it allows."""

    version: str
    fault_injection: bool = Field(description="Faults may be struck at running jobs (SHARDYARD_FAULT_INJECTION).")
    authentication: bool = Field(True, description="Whether it asks for an access token.")


class Template(Value):
    """A spec to begin with."""

    name: str
    about: str = Field(description="What it shows.")
    text: str = Field(description="The spec as YAML.")


class Templates(Value):
    items: list[Template]


class Health(Value):
    status: str


class Check(Value):
    """One thing that the API needs."""

    ok: bool
    code: str | None = Field(None, description="What is wrong, as in a refusal's `code`.")
    message: str | None = None
    remedy: str | None = None


class Readiness(Value):
    """Whether this API can do its work: `status` is `ready`, `degraded` (it serves what is stored) or `unready`."""

    status: str
    checks: dict[str, Check]
