"""The shelf: a job's checkpoints, a folder `step-NNNNNNNN` each. One without a manifest was cut off: ignored, and overwritten.

Making room never takes the checkpoint that was saved last: whatever has become of the others, that one was just written.
"""

import shutil
from pathlib import Path

from .errors import CheckpointError
from .manifest import MANIFEST, Manifest, read


def folder(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def complete(root: Path) -> list[Path]:
    """The complete checkpoints below `root`, newest first."""
    return sorted((manifest.parent for manifest in root.glob(f"step-*/{MANIFEST}")), reverse=True)


def prune(root: Path, keep: int, saved: Path) -> None:
    """Remove all but `saved` and the newest others, `keep` together, and older saves that were cut off.

    Nothing goes unless `saved` is there as it was written. A manifest goes first: a half-removed checkpoint is never believed.
    """
    if not _in_place(saved):
        return
    others = [path for path in complete(root) if path != saved]
    for path in others[keep - 1 :]:
        (path / MANIFEST).unlink(missing_ok=True)
    for path in root.glob("step-*"):
        if path < saved and not (path / MANIFEST).exists():
            shutil.rmtree(path, ignore_errors=True)


def clear(path: Path, manifest: Manifest) -> None:
    """Remove what an earlier save of the same step has left in the folder."""
    for file in path.iterdir():
        if file.name != MANIFEST and file.name not in manifest.files:
            file.unlink(missing_ok=True)


def _in_place(path: Path) -> bool:
    """Whether a checkpoint's manifest can be read back and its files are there in full."""
    try:
        files = read(path).files
        return all((path / name).stat().st_size == said.bytes for name, said in files.items())
    except (CheckpointError, OSError):
        return False
