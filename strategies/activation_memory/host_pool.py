"""Host memory for copies of tensors, in pieces that later copies use again.

A piece has the size that is asked for. torch's pinned memory is in powers of two, which is up to twice as much.
"""

import torch

from .. import pinned_memory
from .copy_lane import Done


class Piece:
    """Host memory for copies of tensors of `device`: `content` [bytes], pinned if that is a GPU: only such copies do not block.

    `done`: the end of the last copy into it or out of it.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self._pinned = pinned_memory.PinnedMemory(size, pinned_memory.CudaPinning(device)) if pinned else None
        self.content = torch.empty(size, dtype=torch.uint8) if self._pinned is None else self._pinned.content
        self.done = Done(None)


class HostPool:
    """Pieces that are not in use. With those in use there are as many as were in use at once."""

    def __init__(self) -> None:
        self._free: list[Piece] = []

    def take(self, size: int, device: torch.device) -> Piece:
        """A piece of at least `size` bytes, at least one."""
        fitting = [piece for piece in self._free if piece.content.numel() >= size]
        if fitting:
            found = min(fitting, key=lambda piece: piece.content.numel())
            self._free.remove(found)
            return found
        if self._free:  # the new one takes the place of the largest, so that sizes that change do not add up
            self._free.sort(key=lambda piece: piece.content.numel())
            self._free[-1].done.wait_on_host()
            self._free.pop()
        return Piece(size, device)

    def give(self, piece: Piece) -> None:
        """Nothing uses the piece any more but its last copy, after which comes what the current stream gets from now on."""
        piece.done.wait_on_device()
        self._free.append(piece)
