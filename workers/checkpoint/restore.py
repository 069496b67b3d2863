"""Restoring: from the job's own newest checkpoint that is whole, else from the one to resume from, else not at all; all ranks alike.

A damaged one is said and passed over, never half used. The one that a user named is not: another would not be what was asked for.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ...strategies.piece import Piece
from .errors import Damaged
from .manifest import Manifest
from .reading import fill
from .shelf import complete
from .verify import verify_together

#: Tells of an incident: its cause and what there is to say.
Warn = Callable[[str, str], None]


def restore(root: Path, resume: Path | None, pieces: Sequence[Piece], warn: Warn) -> dict[str, Any] | None:
    """Fill `pieces` and return the training state; None: from the start. Collective. Raises `CheckpointError`."""
    damaged: list[Damaged] = []
    found = _newest_whole(root, damaged)
    instead = str(found[0]) if found else str(resume) if resume else "the start"
    for error in damaged:
        warn(error.code, f"{str(error).partition(';')[0]}; training goes on from {instead}.")
    if found is None and resume is not None:
        found = resume, verify_together(resume)
    if found is None:
        return None
    path, manifest = found
    fill(path, manifest, pieces)
    return dict(manifest.training)


def _newest_whole(root: Path, damaged: list[Damaged]) -> tuple[Path, Manifest] | None:
    """The newest checkpoint of which every file is whole; newer ones that are not are added to `damaged`."""
    for path in _candidates(root):
        try:
            return path, verify_together(path)
        except Damaged as error:
            damaged.append(error)
    return None


def _candidates(root: Path) -> list[Path]:
    """As rank 0 sees them: other nodes may see a folder later."""
    names = [[str(path) for path in complete(root)] if dist.get_rank() == 0 else []]
    dist.broadcast_object_list(names, src=0)
    return [Path(name) for name in names[0]]
