"""Reading: pieces of any layout are filled from rectangles of any other; only their overlaps are read, and nothing is unpickled."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from ...strategies.piece import Piece, narrow
from .errors import CheckpointError, Damaged
from .image import DTYPES
from .manifest import Manifest, Rectangle

#: First coordinates and lengths of a rectangle.
Region = tuple[tuple[int, ...], tuple[int, ...]]


@torch.no_grad()
def fill(path: Path, manifest: Manifest, pieces: Sequence[Piece]) -> None:
    """Fill `pieces` from the files of the checkpoint at `path`; values take the pieces' dtypes. Raises `CheckpointError`."""
    wanted: dict[str, list[Piece]] = {}
    for piece in pieces:
        _check(piece, manifest)
        wanted.setdefault(piece.name, []).append(piece)
    filled = sum(_fill_from(path, name, manifest, wanted) for name in manifest.files)
    missing = sum(piece.tensor.numel() for piece in pieces) - filled
    if missing:
        raise CheckpointError(f"{path} lacks {missing} elements of what is to be read from it.")


def _check(piece: Piece, manifest: Manifest) -> None:
    saved = manifest.tensors.get(piece.name)
    if saved is None:
        raise CheckpointError(f"the checkpoint holds no {piece.name}: it is of another model or optimizer.")
    if saved.shape != piece.shape:
        raise CheckpointError(f"{piece.name} is {saved.shape} in the checkpoint and {piece.shape} here: another model.")


def _fill_from(path: Path, name: str, manifest: Manifest, wanted: dict[str, list[Piece]]) -> int:
    """Copy what one file holds of the wanted pieces; returns the number of elements."""
    found = [
        (rectangle, piece, region)
        for rectangle in manifest.files[name].pieces
        for piece in wanted.get(rectangle.name, ())
        if (region := _overlap(rectangle, piece)) is not None
    ]
    if not found:
        return 0
    try:
        with (path / name).open("rb") as file:
            for rectangle, piece, region in found:
                dtype = DTYPES[manifest.tensors[piece.name].dtype]
                source = _read(file, rectangle, region, dtype)
                narrow(piece.tensor.detach(), _less(region[0], piece.offset), region[1]).copy_(source)
    except OSError as error:
        raise Damaged(f"{path} is damaged: {name} cannot be read ({error}); use an older checkpoint.") from error
    return sum(math.prod(region[1]) for _, _, region in found)


def _overlap(rectangle: Rectangle, piece: Piece) -> Region | None:
    """What the two have in common, in the whole tensor's coordinates."""
    low = tuple(map(max, rectangle.offset, piece.offset))
    ends = zip(rectangle.offset, rectangle.size, piece.offset, piece.tensor.shape, strict=True)
    high = tuple(min(a + m, b + n) for a, m, b, n in ends)
    size = _less(high, low)
    return (low, size) if all(length > 0 for length in size) else None


def _read(file: BinaryIO, rectangle: Rectangle, region: Region, dtype: torch.dtype) -> torch.Tensor:
    """The region of a saved rectangle. Whole rows are read, since they lie together in the file, then cut."""
    offset, size = _less(region[0], rectangle.offset), region[1]
    rows = torch.empty((size[0], *rectangle.size[1:]), dtype=dtype)
    file.seek(rectangle.start + offset[0] * math.prod(rectangle.size[1:]) * dtype.itemsize)
    room = rows.flatten().view(torch.uint8).numpy()
    if file.readinto(room) != room.nbytes:  # type: ignore[attr-defined]
        raise OSError(f"it ends before {rectangle.name}")
    return narrow(rows, (0, *offset[1:]), size)


def _less(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))
