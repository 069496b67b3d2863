"""Which heads CUDA's flash attention takes, in bf16 and fp16. Imports no torch."""

from typing import Final

#: It needs this compute capability, and heads of sizes up to 256.
FLASH_CAPABILITY: Final = (8, 0)
_MOST_HEAD: Final = 256
#: Sizes that its backward pass refuses on capabilities between 8.0 and 9.0, and above 10.0.
_REFUSED: Final = range(193, 225)
_HOPPER: Final = (9, 0)
_BLACKWELL: Final = (10, 0)


def flash_takes(size: int, capability: tuple[int, int]) -> bool:
    """Whether it computes heads of `size`, forward and backward, on a GPU of this compute capability."""
    if capability < FLASH_CAPABILITY or size > _MOST_HEAD:
        return False
    refuses = FLASH_CAPABILITY < capability < _HOPPER or capability > _BLACKWELL
    return not (refuses and size in _REFUSED)
