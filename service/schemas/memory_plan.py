"""What a rank is planned to hold, before any device is taken."""

from pydantic import Field

from ...strategies.cost.plan import Source
from .base import Value


class KindBytes(Value):
    """Bytes of one kind of memory."""

    kind: str
    bytes: int


class MemoryPlan(Value):
    """Memory plan of the rank that needs most, at the peak of a step."""

    device: str = Field(description="Kind of devices: `cpu` or `cuda`.")
    source: Source = Field(
        "formulas",
        description="`formulas` of the cost model; or `dry run`, which the submitter made of a module of the user's own.",
    )
    fits: bool | None = Field(description="Whether the job fits on the known nodes; null: their memory is unknown.")
    bytes: int = Field(description="Bytes of tensors at the peak.")
    needed_bytes: int = Field(description="Bytes that a rank needs: tensors, and what its process holds beside them.")
    reserved_bytes: int = Field(description="Bytes of `needed_bytes` that the process holds beside its tensors.")
    device_bytes: int | None = Field(
        description="Memory of the largest known GPU, or of the largest known node, whose CPU ranks share it."
    )
    kinds: list[KindBytes] = Field(
        description="Bytes by kind at the peak: `parameters`, `gradients`, `optimizer`, `activations`, `logits`, `buffers`, `workspace`."
    )
    host: list[KindBytes] = Field(
        description="Bytes in host memory by what they are for: offload. Snapshots are not counted."
    )
    notes: list[str] = Field(description="Where the plan is only an estimate, and why.")
