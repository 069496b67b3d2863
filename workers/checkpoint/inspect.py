"""Checks whether a checkpoint still exists and is valid, as far as this process can read its storage."""

from dataclasses import dataclass

from ...strategies.layout import Refusal
from ..storage.errors import StorageError
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from .errors import CheckpointCorrupt, CheckpointError
from .manifest import MANIFEST, read


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    `verdict`: `whole`, `damaged`, `removed`, `there` (exists, not compared), or `unseen` (the storage could not be read from here).
    `damaged`: names of damaged files. `why`: the problem as a sentence; with `unseen` also its `code`.
    `files` and `bytes`: number and size of the compared files.
    """

    verdict: str
    why: str | None = None
    damaged: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    code: str = StorageError.code


def inspect_checkpoint(path: str, *, verify: bool) -> Inspection:
    """Inspect the checkpoint at this address. Never raises: an error of the storage is a verdict. Without `verify` no file is read."""
    try:
        return _inspect(folder_at(path), verify)
    except CheckpointCorrupt as error:
        return Inspection("damaged", str(error), (MANIFEST,))
    except (CheckpointError, StorageError) as error:
        return Inspection("unseen", str(error), code=error.code)
    except (Refusal, OSError) as error:
        return Inspection("unseen", str(error))


def _inspect(folder: Folder, verify: bool) -> Inspection:
    root = folder_at(folder.where.rpartition("/")[0])
    if not folder.has(MANIFEST):
        if root.folders():
            return Inspection("removed")
        return Inspection("unseen", f"{root} cannot be seen from here, or is empty.")
    if not verify:
        return Inspection("there")
    from .verify import compare  # needs torch

    manifest = read(folder)
    wrong = compare(folder, manifest)
    if not wrong:
        return Inspection("whole", None, (), len(manifest.files), manifest.bytes)
    why = f"{folder} is damaged: {', '.join(wrong)} does not match its checksum; use an older checkpoint."
    return Inspection("damaged", why, tuple(wrong), len(manifest.files), manifest.bytes)
