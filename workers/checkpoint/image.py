"""A rank's file as it lies in memory: the pieces that this rank owns, as a safetensors file, one after the other without a gap.

The memory is made once and used for every checkpoint, since a rank's pieces never change their place or size. On CUDA it is pinned, and
filled on a stream of its own.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import torch

from ...strategies.piece import Piece
from .errors import CheckpointError
from .manifest import Rectangle, Tensor

#: safetensors' names of types.
DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
#: The header's length is a multiple of it, and larger elements come first: so every tensor is aligned.
_ALIGN: Final = 8


class Image:
    """`content()` is the file after `take()`; `rectangles` and `tensors` are what the manifest says of it."""

    def __init__(self, pieces: Sequence[Piece], device: torch.device) -> None:
        self._pieces = sorted((piece for piece in pieces if piece.tensor.numel()), key=lambda p: -p.tensor.itemsize)
        header, start = _header(self._pieces)
        self.tensors = {piece.name: Tensor(_dtype(piece), piece.shape) for piece in self._pieces}
        self.rectangles: list[Rectangle] = []
        cuda = device.type == "cuda"
        size = start + sum(piece.tensor.nbytes for piece in self._pieces)
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=cuda)
        self._memory[:start] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
        self._device, self._stream = device, torch.cuda.Stream(device) if cuda else None
        self._copied: torch.cuda.Event | None = None
        self._places: list[torch.Tensor] = []
        for piece in self._pieces:
            end = start + piece.tensor.nbytes
            self._places.append(self._memory[start:end].view(piece.tensor.dtype).view(piece.tensor.shape))
            self.rectangles.append(Rectangle(piece.name, piece.offset, tuple(piece.tensor.shape), start))
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


def _header(pieces: Sequence[Piece]) -> tuple[bytes, int]:
    """The file's beginning, and its length: 8 bytes that tell how long the JSON is, and the JSON, filled with spaces."""
    table: dict[str, Any] = {}
    end = 0
    for piece in pieces:
        if piece.name in table:
            raise CheckpointError(f"this rank owns two rectangles of {piece.name}")
        begin, end = end, end + piece.tensor.nbytes
        table[piece.name] = {
            "dtype": _dtype(piece),
            "shape": list(piece.tensor.shape),
            "data_offsets": [begin, end],
        }
    said = json.dumps(table, separators=(",", ":")).encode()
    said += b" " * (-len(said) % _ALIGN)
    return len(said).to_bytes(8, "little") + said, 8 + len(said)


def _dtype(piece: Piece) -> str:
    try:
        return _NAMES[piece.tensor.dtype]
    except KeyError:
        raise CheckpointError(f"{piece.name} is of {piece.tensor.dtype}, which checkpoints cannot hold.") from None
