"""The header of a rank's file: safetensors' table of its tensors, and its names of types. Imports no torch."""

import json
from collections.abc import Iterable
from typing import Any, Final

from .errors import CheckpointError

#: safetensors' names of types → torch's.
DTYPES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_NAMES: Final = {f"torch.{dtype}": name for name, dtype in DTYPES.items()}
#: The header's length is a multiple of it, and larger elements come first: so every tensor is aligned.
_ALIGN: Final = 8


def dtype_name(name: str, dtype: str) -> str:
    """safetensors' name of the type of tensor `name`, which torch writes as `dtype`. Raises `CheckpointError`."""
    try:
        return _NAMES[dtype]
    except KeyError:
        raise CheckpointError(f"{name} is of {dtype}, which checkpoints cannot hold.") from None


def header(entries: Iterable[tuple[str, str, tuple[int, ...], int]]) -> tuple[bytes, int]:
    """The header of a file with these tensors (name, type, shape and bytes of each, in order), and the header's length.

    It is the length of the JSON in 8 bytes, and the JSON, padded with spaces.
    """
    table: dict[str, Any] = {}
    end = 0
    for name, dtype, shape, size in entries:
        if name in table:
            raise CheckpointError(f"this rank owns two slices of {name}")
        begin, end = end, end + size
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    return len(text).to_bytes(8, "little") + text, 8 + len(text)
