"""Overlap: the bucket size and prefetch depth of communication, as a value. Imports no torch."""

from pydantic import BaseModel, ConfigDict, Field


class Overlap(BaseModel):
    """Bucket size and prefetch depth. More of either hides more communication and uses more memory: at most 2 × `prefetch` buckets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bucket_mb: float = Field(
        8.0,
        gt=0,
        le=4096,
        allow_inf_nan=False,
        description="Size of a gradient bucket in MiB (ZeRO-0 to 2). A parameter of at least half of that is sent alone, without a copy.",
    )
    prefetch: int = Field(
        2,
        ge=1,
        le=64,
        description="Buckets in transit at a time (ZeRO-1 and 2), or blocks gathered ahead and gradients sent behind (ZeRO-3).",
    )

    @property
    def bucket_bytes(self) -> int:
        """At least 1: of a size below a byte every parameter is sent alone."""
        return max(1, int(self.bucket_mb * (1 << 20)))
