"""Verifying: nothing of a checkpoint is used before all of its files match the checksums in its manifest."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch.distributed as dist

from .errors import CheckpointError, Damaged
from .manifest import MANIFEST, File, Manifest, read, text


@dataclass(frozen=True)
class _Finding:
    """What one rank saw of a checkpoint."""

    manifest: str = ""  # checksum
    damaged: list[str] = field(default_factory=list)
    error: CheckpointError | None = None


def verify(path: Path, manifest: Manifest) -> None:
    """Check all files, in one process. Raises `Damaged`."""
    _refuse(path, _damaged(path, manifest, manifest.files))


def verify_together(path: Path) -> Manifest:
    """The manifest, once all files match it: each rank checks its share, all learn the outcome. Collective. Raises `CheckpointError`."""
    manifest, own = _look(path)
    findings: list[_Finding] = [own] * dist.get_world_size()
    dist.all_gather_object(findings, own)
    for finding in findings:
        if finding.error is not None:
            raise finding.error
    _refuse(path, [name for finding in findings for name in finding.damaged])
    if len({finding.manifest for finding in findings}) > 1:
        raise Damaged(f"{path} is damaged: not all ranks read the same {MANIFEST}; use an older checkpoint.")
    assert manifest is not None
    return manifest


def _look(path: Path) -> tuple[Manifest | None, _Finding]:
    """This rank's share."""
    try:
        manifest = read(path)
    except CheckpointError as error:
        return None, _Finding(error=error)
    share = sorted(manifest.files)[dist.get_rank() :: dist.get_world_size()]
    return manifest, _Finding(hashlib.sha256(text(manifest)).hexdigest(), _damaged(path, manifest, share))


def _refuse(path: Path, damaged: list[str]) -> None:
    if damaged:
        named = ", ".join(damaged)
        raise Damaged(f"{path} is damaged: {named} does not match its checksum; use an older checkpoint.")


def _damaged(path: Path, manifest: Manifest, names: Iterable[str]) -> list[str]:
    return [name for name in names if not _matches(path / name, manifest.files[name])]


def _matches(file: Path, said: File) -> bool:
    """Whether a file is as it was saved; one that cannot be read is not."""
    try:
        if file.stat().st_size != said.bytes:
            return False
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == said.sha256
    except OSError:
        return False
