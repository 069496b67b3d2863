"""Which heads CUDA's flash attention takes, in bf16 and fp16. Imports no torch."""

from typing import Final

#: It needs this compute capability, and heads of sizes up to 256.
FLASH_CAPABILITY: Final = (8, 0)
_MOST_HEAD: Final = 256


def flash_takes(size: int, capability: tuple[int, int]) -> bool:
    """Whether it computes heads of `size` on a GPU of this compute capability."""
    return capability >= FLASH_CAPABILITY and size <= _MOST_HEAD
