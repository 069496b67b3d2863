"""Overlap of communication with computing, as a value: sizes of buckets, depth of prefetch, chunks. Imports no torch."""

from pydantic import BaseModel, ConfigDict, Field

from .layout import Layout, Refusal


class Overlap(BaseModel):
    """Bucket size, prefetch depth and chunks. More of the first two hides more communication and uses more memory: at most 2 × `prefetch`
    buckets.
    """

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
    tensor_chunks: int = Field(
        1,
        ge=1,
        le=64,
        description="Asynchronous tensor parallelism: attention and feed-forward layers gather, multiply and reduce in this many chunks of "
        "positions, so that a chunk is sent while another is multiplied. 1: all positions at once.",
    )

    @property
    def bucket_bytes(self) -> int:
        """At least 1: of a size below a byte every parameter is sent alone."""
        return max(1, int(self.bucket_mb * (1 << 20)))


def check_overlap(layout: Layout, overlap: Overlap) -> None:
    """Raises `Refusal` for chunks that a tensor group's shape has no place for."""
    if overlap.tensor_chunks > 1 and layout.tensor_shape is not None:
        raise Refusal(
            "overlap.tensor_chunks",
            f"a grid of {layout.tensor_shape} multiplies blocks of matrices as they arrive and does not divide positions into chunks.",
            "Set overlap.tensor_chunks to 1, or layout.tensor to a number.",
        )
