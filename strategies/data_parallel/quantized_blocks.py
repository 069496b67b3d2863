"""Symmetric quantisation in blocks, each with one scale (Dettmers et al., 2110.02861, section 2.1), as ZeRO++'s messages need it.

With L = 127 levels of either sign in 8 bits and 7 in 4 bits, a block of numbers x has the scale s = max |x| / L and the codes
round(x / max |x| · L), half to even. What is read back differs from x by at most s/2, half a quantisation step, and for 16-bit values by
their own rounding. A block of zeros stays zero. A block with an infinity or a NaN is read back as numbers that are not finite either.

A message is a row of bytes: the scales, then the codes, in 4 bits two to a byte. Scales are fp32, of fp64 values fp64.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch


class BlockQuantizer:
    """Quantises rows that are made of tensors of `sizes` numbers, one after the other. Each tensor begins a block; its last may be short.

    `bits`: 8 or 4. `block`: an even number.
    """

    def __init__(self, bits: int, block: int, sizes: Sequence[int]) -> None:
        self._bits, self._block, self._sizes = bits, block, list(sizes)
        self._levels = 2 ** (bits - 1) - 1
        counts = [-(-size // block) for size in sizes]
        self._blocks = sum(counts)
        # Where each tensor begins: in a row, in a row whose blocks are all whole, and among the codes, where each has whole bytes.
        self._in_row = _starts(self._sizes)
        self._in_blocks = _starts([count * block for count in counts])
        codes = [size + size % 2 if bits == 4 else size for size in sizes]
        self._in_codes, self._codes = _starts(codes), sum(codes)
        self._even = all(size % block == 0 for size in sizes)

    def message_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the message of a row of `dtype`."""
        return self._blocks * _wide(dtype).itemsize + self._codes * self._bits // 8

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        """The messages [R, bytes] of `rows` [R, n], uint8."""
        blocks = self._as_blocks(rows.to(_wide(rows.dtype)), self._in_row)
        largest = blocks.abs().amax(-1)
        whole = largest.masked_fill(largest == 0, 1).unsqueeze(-1)
        # Divided by the largest number first: sums of codes have exact halves of it, which then round alike whatever their last bits are.
        codes = (blocks / whole).mul_(self._levels).round_().clamp_(-self._levels, self._levels).to(torch.int8)
        return torch.cat([(largest / self._levels).view(torch.uint8), self._packed(codes)], 1)

    def decode(self, messages: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        """Write what `messages` [R, bytes] hold into `into` [R, n]; returns it."""
        wide = _wide(into.dtype)
        end = self._blocks * wide.itemsize
        # A copy: a message may begin anywhere in memory, and its length need not be a multiple of a scale's.
        scales = messages[:, :end].clone(memory_format=torch.contiguous_format).view(wide).unsqueeze(-1)
        codes = self._unpacked(messages[:, end:])
        if self._even:
            torch.mul(codes, scales, out=into.view(codes.shape))
            return into
        values = (codes * scales).flatten(1)
        return self._copied(values, self._in_blocks, into, self._in_row)

    def _as_blocks(self, rows: torch.Tensor, starts: Sequence[int]) -> torch.Tensor:
        """Numbers [R, …] whose tensors begin at `starts`, as [R, blocks, block], where short blocks are filled with zeros."""
        if not self._even:
            whole = rows.new_zeros(rows.shape[0], self._blocks * self._block)
            rows = self._copied(rows, starts, whole, self._in_blocks)
        return rows.reshape(rows.shape[0], self._blocks, self._block)

    def _packed(self, codes: torch.Tensor) -> torch.Tensor:
        """The codes of blocks as bytes [R, …]. In 4 bits a code c is c + 8, the first of two in the lower half."""
        flat = codes.flatten(1)
        if not self._even:
            flat = self._copied(flat, self._in_blocks, flat.new_zeros(flat.shape[0], self._codes), self._in_codes)
        if self._bits == 8:
            return flat.view(torch.uint8)
        halves = (flat + 8).view(torch.uint8)
        return halves[:, ::2] | halves[:, 1::2] << 4

    def _unpacked(self, packed: torch.Tensor) -> torch.Tensor:
        """What `_packed` made bytes of, as blocks of int8."""
        if self._bits == 8:
            return self._as_blocks(packed.view(torch.int8), self._in_codes)
        halves = torch.stack([packed & 15, packed >> 4], -1).flatten(1)
        return self._as_blocks(halves.view(torch.int8) - 8, self._in_codes)

    def _copied(
        self, source: torch.Tensor, here: Sequence[int], target: torch.Tensor, there: Sequence[int]
    ) -> torch.Tensor:
        """`target` with each tensor's numbers from `source`, in which they begin at `here`, from `there` on."""
        for size, a, b in zip(self._sizes, here, there, strict=True):
            target[:, b : b + size].copy_(source[:, a : a + size])
        return target


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][: len(sizes)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scales, and of the arithmetic."""
    return torch.float64 if dtype == torch.float64 else torch.float32
