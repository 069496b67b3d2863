"""`Artifact`: a file, image or table that a program logged. Its name is a relative path that is safe on any system.

The type of its content comes from the content's first bytes, never from its name. Needs only the standard library: programs use it, too.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

#: Maximum characters of a name, and bytes of each part of it, as file systems take them.
MOST_NAME: Final = 400
MOST_PART: Final = 255
#: Bytes that `media_type` looks at.
HEAD_BYTES: Final = 16
#: Types of images that a page may show: none of them holds scripts.
PNG: Final = "image/png"
SHOWN: Final = (PNG, "image/jpeg", "image/webp")
CSV: Final = "text/csv"
OTHER: Final = "application/octet-stream"
#: Steps are below this.
MOST_STEP: Final = 2**53
#: What a name may not have beside control characters: separators of other systems.
_FORBIDDEN: Final = frozenset('\\:*?"<>|')

Kind = Literal["file", "image", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that is in the job's storage, whole."""

    name: str
    """Name in the job, a relative path."""
    step: int | None = None
    """The step that it belongs to. Null: to the whole run."""
    type: Kind = "file"
    """How it was logged: `file`, `image` or `table`."""
    bytes: int
    """Its size."""
    sha256: str
    """Its SHA-256, in 64 hexadecimal digits. Equal files of a job are stored once."""
    media_type: str = OTHER
    """Type of the content by its first bytes."""


def check_name(name: Any) -> None:
    """Raise ValueError unless it can be the name of an artifact."""
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise ValueError(f"{ascii(name)[:80]} is not a name of 1 to {MOST_NAME} printable characters")
    if set(name) & _FORBIDDEN:
        raise ValueError(f"{ascii(name)[:80]} has one of {' '.join(sorted(_FORBIDDEN))}")
    parts = name.split("/")
    if any(part in ("", ".", "..") or part != part.strip() for part in parts):
        raise ValueError(f"{ascii(name)[:80]} is not a relative path without empty parts, '.' and '..'")
    if any(len(part.encode()) > MOST_PART for part in parts):
        raise ValueError(f"{ascii(name)[:80]} has a part of more than {MOST_PART} bytes")


def check_step(step: Any) -> None:
    """Raise ValueError unless it can be the step of an artifact; None is no step."""
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < MOST_STEP):
        raise ValueError(f"{ascii(step)[:80]} is not a whole number from 0 to {MOST_STEP - 1}")


def media_type(kind: Kind, head: bytes) -> str:
    """The type of content that begins with `head`, its first `HEAD_BYTES` bytes."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return CSV if kind == "table" else OTHER
