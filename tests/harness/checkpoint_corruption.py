"""What a disk may do to a checkpoint."""

import os
from pathlib import Path

from .control_plane import ControlPlane


def newest_checkpoint(plane: ControlPlane, job: str) -> Path | None:
    manifests = sorted((plane.storage / job).glob("step-*/manifest.json"))
    return manifests[-1].parent if manifests else None


def flip_bit(checkpoint: Path, luck: float) -> None:
    """Flip a bit of one of its files."""
    file = _a_file(checkpoint, luck)
    content = bytearray(file.read_bytes())
    content[_place(luck, len(content))] ^= 1 << int(luck * 8)
    file.write_bytes(content)


def truncate_file(checkpoint: Path, luck: float) -> None:
    """Cut one of its files short."""
    file = _a_file(checkpoint, luck)
    os.truncate(file, _place(luck, file.stat().st_size))


def _place(luck: float, size: int) -> int:
    return int(luck * 1e9) % size


def _a_file(checkpoint: Path, luck: float) -> Path:
    files = sorted(file for file in checkpoint.iterdir() if file.is_file() and file.stat().st_size)
    return files[int(luck * len(files))]
