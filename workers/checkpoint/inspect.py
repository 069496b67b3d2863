"""Checks whether a checkpoint still exists and is valid, as far as this process can read its storage."""

from dataclasses import dataclass

from ...strategies.layout import Refusal
from ..storage.errors import StorageError
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from .errors import CheckpointCorrupt, CheckpointError
from .manifest import MANIFEST, Manifest, read


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    `verdict`: `valid`, `corrupt`, `deleted`, `present` (exists, not compared), or `unknown` (the storage could not be read from here).
    `corrupt`: names of corrupt files. `why`: the problem as a sentence; with `unknown` also its `code`.
    `files` and `bytes`: number and size of the compared files.
    """

    verdict: str
    why: str | None = None
    corrupt: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    code: str = StorageError.code


def inspect_checkpoint(path: str, *, verify: bool) -> Inspection:
    """Inspect the checkpoint at this address. Never raises: an error of the storage is a verdict. Without `verify` no file is read."""
    try:
        return _inspect(folder_at(path), verify)
    except CheckpointCorrupt as error:
        return Inspection("corrupt", str(error), (MANIFEST,))
    except (CheckpointError, StorageError) as error:
        return Inspection("unknown", str(error), code=error.code)
    except (Refusal, OSError) as error:
        return Inspection("unknown", str(error))


def _still_there(folder: Folder) -> Manifest | None:
    """Its manifest now; None once it is removed, as a save does that makes room: first its manifest, then its files."""
    return read(folder) if folder.has(MANIFEST) else None


def _inspect(folder: Folder, verify: bool) -> Inspection:
    root = folder_at(folder.where.rpartition("/")[0])
    if not folder.has(MANIFEST):
        if root.folders():
            return Inspection("deleted")
        return Inspection("unknown", f"{root} cannot be seen from here, or is empty.")
    if not verify:
        return Inspection("present")
    from .verify import compare  # needs torch

    manifest = read(folder)
    wrong = compare(folder, manifest)
    if not wrong:
        return Inspection("valid", None, (), len(manifest.files), manifest.bytes)
    now = _still_there(folder)
    if now is None:
        return Inspection("deleted")
    if now.sha256 != manifest.sha256:
        return Inspection("unknown", f"{folder} is being saved again; verify it once more.")
    why = f"{folder} is corrupt: {', '.join(wrong)} does not match its checksum; use an older checkpoint."
    return Inspection("corrupt", why, tuple(wrong), len(manifest.files), manifest.bytes)
