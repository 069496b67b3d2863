"""How a global batch is cut over data ranks and micro-batches. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Batch:
    """`global_batch = data × microbatches × micro_batch`, in sequences."""

    global_batch: int
    data: int
    microbatches: int
    micro_batch: int

    def __str__(self) -> str:
        return (
            f"global batch {self.global_batch} = {self.data} data × "
            f"{self.microbatches} micro-batches × {self.micro_batch} sequences"
        )
