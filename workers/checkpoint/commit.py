"""Makes a checkpoint of the files that are written: its manifest is published last. Then older ones are removed. Imports no torch.

A rank 0 that was cut off lives as long as its lease, and may save the step that its successor saves. The one removes the other's files.
So a save counts only if all of its files are there before its manifest is published and after it.
"""

import contextlib
from collections.abc import Collection
from typing import NamedTuple

from ..storage.folder import Folder
from .errors import CheckpointError
from .manifest import MANIFEST, Manifest, PublishedManifest, write
from .retention import clear, folder, prune, refuse_lost, sweep


class Committed(NamedTuple):
    """`digest`: the manifest's checksum. `kept`: what `prune` returned; None, too, if the storage failed by then."""

    digest: str
    kept: tuple[int, ...] | None


def commit(root: Folder, keep: int, manifest: Manifest, spared: Collection[int] = ()) -> Committed:
    """Publish a manifest in the folder of its step, then prune.

    Raises OSError, and CheckpointError if another save has removed files of this one; then this manifest is gone, too.
    """
    path, kept = folder(root, manifest.step), None
    refuse_lost(path, manifest, path.files())
    published = write(path, manifest)
    try:
        with contextlib.suppress(OSError):
            clear(published)
            kept = prune(root, keep, published, spared)
            sweep(root, path)
    except CheckpointError:
        _withdraw(published)
        raise
    return Committed(published.sha256, kept)


def _withdraw(published: PublishedManifest) -> None:
    """Remove this manifest, as far as the storage answers. That of another save stays."""
    with contextlib.suppress(OSError):
        if published.is_there():
            published.folder.remove(MANIFEST)
