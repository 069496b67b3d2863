"""The content of an image file, from what programs have: files, images of Pillow, arrays, tensors.

Files of types that a browser shows are taken as they are; numbers become PNG. Imports none of the libraries whose values it takes.
"""

import errno
import io
import os
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, Final

from ..messages.artifact import HEAD_BYTES, SHOWN, media_type

#: Maximum number of pixels of an array.
MOST_PIXELS: Final = 1 << 26
#: Number of channels → colour type of PNG (https://www.w3.org/TR/png-3/#11IHDR): grey, RGB, RGB with alpha.
_COLOURS: Final = {1: 0, 3: 2, 4: 6}
_LEVEL: Final = 6


def content(image: Any) -> "bytes | Path":
    """The bytes, or the path, of an image file. Raises ValueError, TypeError for what is no image, OSError for an unreadable path."""
    if isinstance(image, bytes | bytearray | memoryview):
        return _shown(bytes(image))
    if isinstance(image, str | os.PathLike):
        if not Path(image).is_file():  # opening a FIFO waits
            raise OSError(errno.EINVAL, "it is no regular file", str(image))
        with Path(image).open("rb") as file:
            _shown(file.read(HEAD_BYTES))
        return Path(image)
    if callable(getattr(image, "save", None)) and hasattr(image, "mode"):
        return _from_pillow(image)
    if "torch" in sys.modules and isinstance(image, sys.modules["torch"].Tensor):
        return _from_tensor(image)
    if "numpy" in sys.modules and isinstance(image, sys.modules["numpy"].ndarray):
        return _from_array(image)
    raise TypeError(
        f"{type(image).__name__} is no image: give bytes or a path of a PNG, JPEG or WebP file, an image of Pillow, an array or a tensor"
    )


def _shown(head: bytes) -> bytes:
    if media_type("image", head[:HEAD_BYTES]) not in SHOWN:
        raise ValueError("the file is no PNG, JPEG or WebP image: convert it, for example with Pillow")
    return head


def _from_pillow(image: Any) -> bytes:
    room = io.BytesIO()
    image.save(room, "PNG")
    return room.getvalue()


def _from_tensor(image: Any) -> bytes:
    """Of shape H x W, or channels x H x W."""
    torch = sys.modules["torch"]
    values = image.detach()
    if values.dim() == 3:
        values = values.permute(1, 2, 0)
    shape = _shape(tuple(values.shape))
    if values.dtype.is_floating_point:
        values = (values.float().nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8)
    if values.dtype != torch.uint8:
        raise TypeError(f"numbers of an image are uint8 or floats from 0 to 1, and not {values.dtype}")
    return png(bytes(values.cpu().reshape(-1).tolist()), *shape)


def _from_array(image: Any) -> bytes:
    """Of shape H x W, or H x W x channels."""
    numpy = sys.modules["numpy"]
    shape = _shape(image.shape)
    if image.dtype.kind == "f":
        clipped = numpy.clip(numpy.nan_to_num(image.astype("float32"), nan=0.0), 0, 1)
        image = numpy.rint(clipped * 255).astype("uint8")
    if image.dtype != "uint8":
        raise TypeError(f"numbers of an image are uint8 or floats from 0 to 1, and not {image.dtype}")
    return png(image.tobytes(), *shape)


def _shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels. Raises ValueError."""
    height, width, channels = (*shape, 1) if len(shape) == 2 else shape if len(shape) == 3 else (0, 0, 0)
    if channels not in _COLOURS or not 0 < height * width <= MOST_PIXELS:
        raise ValueError(f"{shape} is not the shape of an image of at most {MOST_PIXELS:,} pixels")
    return height, width, channels


def png(values: bytes, height: int, width: int, channels: int) -> bytes:
    """A PNG file of 8-bit values, row by row."""
    row = width * channels
    rows = b"".join(b"\0" + values[at : at + row] for at in range(0, len(values), row))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows, _LEVEL)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
