"""Overlap: how communication is cut and how far it runs ahead of computing, as a value. Imports no torch."""

from pydantic import BaseModel, ConfigDict, Field


class Overlap(BaseModel):
    """Bucket size and prefetch depth. More of either hides more and holds more memory: up to 2 × `prefetch` buckets at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bucket_mb: float = Field(
        8.0,
        gt=0,
        le=4096,
        allow_inf_nan=False,
        description="Gradients that travel together, in MiB (ZeRO-0 to 2; a parameter of half of that travels alone, uncopied).",
    )
    prefetch: int = Field(
        2,
        ge=1,
        le=64,
        description="Buckets on their way at a time (ZeRO-1 and 2), or blocks gathered ahead and gradients sent behind (ZeRO-3).",
    )

    @property
    def bucket_bytes(self) -> int:
        return int(self.bucket_mb * (1 << 20))
