"""Which GPUs multiply a mixture's experts in bf16 by one grouped product, and which rows it takes. Imports no torch."""

from collections.abc import Iterable
from typing import Final

#: From Ampere to Hopper torch's grouped product is fast and right. On Blackwell an expert without rows gets a gradient that is not zero
#: (pytorch/pytorch#172439, open in November 2026).
_AMPERE: Final = (8, 0)
HOPPER: Final = (9, 0)
#: It needs rows that begin at a multiple of this many bytes.
_ROW_BYTES: Final = 16


def groups_experts(capability: tuple[int, int]) -> bool:
    """Whether a GPU of this compute capability does. NVIDIA has none between Hopper's and Blackwell's, where AMD's MI300X is (9.4)."""
    return _AMPERE <= capability <= HOPPER


def rows_fit(widths: Iterable[int], element: int) -> bool:
    """Whether it takes rows of these widths, in elements of `element` bytes."""
    return all(width * element % _ROW_BYTES == 0 for width in widths)
