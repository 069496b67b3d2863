"""Verifying: nothing of a checkpoint is used before all of its files match the checksums in its manifest."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch.distributed as dist

from ..ready_ranks import wait_for_all
from ..storage.errors import StorageError
from ..storage.folder import Folder
from .errors import CheckpointAbsent, CheckpointCorrupt, CheckpointError
from .manifest import MANIFEST, Manifest, read, refuse_removed


@dataclass(frozen=True)
class _Finding:
    """What one rank read of a checkpoint."""

    manifest: str = ""  # checksum
    corrupt: list[str] = field(default_factory=list)
    error: CheckpointError | StorageError | None = None


def verify(path: Folder, manifest: Manifest, beat: Callable[[], None] = lambda: None) -> None:
    """Check all files, in one process. Raises `CheckpointCorrupt`, and `CheckpointRemoved` if it was removed meanwhile.

    `beat` is called for each block of a file.
    """
    _refuse(path, _unless_removed(path, _corrupt(path, manifest, manifest.files, beat)))


def compare(path: Folder, manifest: Manifest) -> list[str]:
    """The corrupt files, found in one process. Raises `StorageError`."""
    return _corrupt(path, manifest, manifest.files)


def verify_together(path: Folder, beat: Callable[[], None] = lambda: None) -> Manifest:
    """The manifest, once all files match it. Each rank checks its share; all ranks get the same outcome. Collective.

    `beat` is called for each block of a file, and while other ranks check theirs: one file of a share more may take longer than the limit
    of a collective. Raises `CheckpointError`, `StorageError`; `CheckpointAbsent` if a rank finds it removed, whatever the others find.
    """
    manifest, own = _inspect(path, beat)
    wait_for_all("verified", beat)
    findings: list[_Finding] = [own] * dist.get_world_size()
    dist.all_gather_object(findings, own)
    errors = [finding.error for finding in findings if finding.error is not None]
    if errors:  # a rank whose node caches names may still see the manifest, and no files
        raise min(errors, key=lambda error: not isinstance(error, CheckpointAbsent))
    _refuse(path, [name for finding in findings for name in finding.corrupt])
    if len({finding.manifest for finding in findings}) > 1:
        raise CheckpointCorrupt(f"{path} is corrupt: not all ranks read the same {MANIFEST}; use an older checkpoint.")
    assert manifest is not None
    return manifest


def _inspect(path: Folder, beat: Callable[[], None]) -> tuple[Manifest | None, _Finding]:
    """This rank's share."""
    try:
        manifest = read(path)
        share = sorted(manifest.files)[dist.get_rank() :: dist.get_world_size()]
        corrupt = _unless_removed(path, _corrupt(path, manifest, share, beat))
    except (CheckpointError, StorageError) as error:
        return None, _Finding(error=error)
    return manifest, _Finding(manifest.sha256, corrupt)


def _unless_removed(path: Folder, corrupt: list[str]) -> list[str]:
    """The corrupt files. Raises `CheckpointRemoved` if they are those of a checkpoint that was removed meanwhile, and `StorageError`."""
    if corrupt:
        refuse_removed(path)
    return corrupt


def _refuse(path: Folder, corrupt: list[str]) -> None:
    if corrupt:
        named = ", ".join(corrupt)
        raise CheckpointCorrupt(f"{path} is corrupt: {named} does not match its checksum; use an older checkpoint.")


def _corrupt(
    path: Folder, manifest: Manifest, names: Iterable[str], beat: Callable[[], None] = lambda: None
) -> list[str]:
    """The corrupt files. Raises `StorageError` if the storage cannot be read."""
    return [name for name in names if not _matches(path, name, manifest, beat)]


def _matches(path: Folder, name: str, manifest: Manifest, beat: Callable[[], None]) -> bool:
    file = manifest.files[name]
    beat()
    try:
        return path.sha256(name, file.bytes, beat) == file.sha256
    except StorageError:
        raise
    except OSError:
        return False
