"""A rank's file as it lies in memory: the pieces that this rank owns, as a safetensors file, one after the other without a gap.

The memory is made once and used for every checkpoint, since a rank's pieces never change their place or size. On CUDA it is pinned, and
filled on a stream of its own.
"""

from collections.abc import Sequence
from typing import Final

import torch

from ...strategies.param_shard import Piece
from . import safetensors_header
from .manifest import Tensor, TensorSlice

#: safetensors' names of types.
DTYPES: Final = {name: getattr(torch, said) for name, said in safetensors_header.DTYPES.items()}


class StagingBuffer:
    """`content()` is the file after `take()`; `slices` and `tensors` are what the manifest says of it."""

    def __init__(self, pieces: Sequence[Piece], device: torch.device) -> None:
        self._pieces = sorted((piece for piece in pieces if piece.tensor.numel()), key=lambda p: -p.tensor.itemsize)
        begins, start = safetensors_header.header(
            (p.name, _dtype(p), tuple(p.tensor.shape), p.tensor.nbytes) for p in self._pieces
        )
        self.tensors = {piece.name: Tensor(_dtype(piece), piece.shape) for piece in self._pieces}
        self.slices: list[TensorSlice] = []
        cuda = device.type == "cuda"
        size = start + sum(piece.tensor.nbytes for piece in self._pieces)
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=cuda)
        self._memory[:start] = torch.frombuffer(bytearray(begins), dtype=torch.uint8)
        self._device, self._stream = device, torch.cuda.Stream(device) if cuda else None
        self._copied: torch.cuda.Event | None = None
        self._places: list[torch.Tensor] = []
        for piece in self._pieces:
            end = start + piece.tensor.nbytes
            self._places.append(self._memory[start:end].view(piece.tensor.dtype).view(piece.tensor.shape))
            self.slices.append(TensorSlice(piece.name, piece.offset, tuple(piece.tensor.shape), start))
            start = end

    @torch.no_grad()
    def take(self) -> None:
        """Copy the pieces as they are now, on CUDA as they are when what was asked for until now is done."""
        if self._stream is None:
            for piece, place in zip(self._pieces, self._places, strict=True):
                place.copy_(piece.tensor)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for piece, place in zip(self._pieces, self._places, strict=True):
                place.copy_(piece.tensor, non_blocking=True)
        self._copied = self._stream.record_event()

    def settle(self) -> None:
        """Let what is asked of the device from now on come after the copy; the host does not wait."""
        if self._copied is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def content(self) -> memoryview:
        """The file; waits for the copy."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._memory.numpy().data


def _dtype(piece: Piece) -> str:
    return safetensors_header.dtype_name(piece.name, str(piece.tensor.dtype))
