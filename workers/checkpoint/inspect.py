"""What has become of a checkpoint that a job told of, as far as its storage can be read from here."""

from dataclasses import dataclass

from ...strategies.layout import Refusal
from ..storage.errors import StorageError
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from .errors import CheckpointCorrupt, CheckpointError
from .manifest import MANIFEST, read


@dataclass(frozen=True)
class Fate:
    """`verdict`: `whole`, `damaged`, `removed`; `there`, where nothing was compared; `unseen`, where nothing is known of it from here.

    `damaged` names files, `why` is a sentence about what is not as it should be, of what is `unseen` with a `code`.

    `files` and `bytes` are of what was compared.
    """

    verdict: str
    why: str | None = None
    damaged: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    code: str = StorageError.code


def fate(path: str, *, verify: bool) -> Fate:
    """Whatever storage does is an answer: nothing is raised. Without `verify` no file is read."""
    try:
        return _fate(folder_at(path), verify)
    except CheckpointCorrupt as error:
        return Fate("damaged", str(error), (MANIFEST,))
    except (CheckpointError, StorageError) as error:
        return Fate("unseen", str(error), code=error.code)
    except (Refusal, OSError) as error:
        return Fate("unseen", str(error))


def _fate(folder: Folder, verify: bool) -> Fate:
    shelf = folder_at(folder.where.rpartition("/")[0])
    if not folder.has(MANIFEST):
        return Fate("removed") if shelf.folders() else Fate("unseen", f"Nothing of {shelf} can be seen from here.")
    if not verify:
        return Fate("there")
    from .verify import compare  # needs torch

    manifest = read(folder)
    wrong = compare(folder, manifest)
    if not wrong:
        return Fate("whole", None, (), len(manifest.files), manifest.bytes)
    why = f"{folder} is damaged: {', '.join(wrong)} does not match its checksum; use an older checkpoint."
    return Fate("damaged", why, tuple(wrong), len(manifest.files), manifest.bytes)
