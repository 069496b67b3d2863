"""What a control plane is: its version, its templates, its health."""

from pydantic import Field

from .base import Value


class Server(Value):
    """Version and permitted features of this control plane."""

    version: str
    fault_injection: bool = Field(
        description="Whether faults can be injected into running jobs (SHARDYARD_FAULT_INJECTION)."
    )
    authentication: bool = Field(True, description="Whether requests need an access token.")
    terminals: bool = Field(
        False, description="Whether terminals and ports of ranks can be opened (SHARDYARD_EXEC, and an access token)."
    )
    undelete_s: float | None = Field(
        86_400.0,
        description="Seconds for which a deleted job can be restored (SHARDYARD_UNDELETE_S); null: without end.",
    )


class Template(Value):
    """An example spec."""

    name: str
    about: str = Field(description="What the example shows.")
    text: str = Field(description="The spec as YAML.")


class Templates(Value):
    """The example specs of this version."""

    items: list[Template]


class Health(Value):
    """Whether the process responds."""

    status: str


class Check(Value):
    """State of one dependency of the API."""

    ok: bool
    code: str | None = Field(None, description="Error code; null if the dependency works.")
    message: str | None = None
    remedy: str | None = None


class Readiness(Value):
    """Readiness of this API. `status` is `ready`, `degraded` (only stored data is served) or `unready`."""

    status: str
    checks: dict[str, Check]
