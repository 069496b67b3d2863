"""A checkpoint of a program: the files that its ranks saved. It counts when its manifest is published, after all files are durable.

Its format is that of all checkpoints (`manifest.py`), without tensors: `training` has the part of each rank that saved, and which stored
file is which of the program's. The names of stored files are new in each save, so that a second save of a step replaces the first at once.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NoReturn

from ..atomic_files import write_synced
from ..regular_files import opened
from ..storage.copy_file import copy_file
from ..storage.errors import StorageError
from ..storage.file_content import FileContent
from ..storage.folder import Folder
from .commit import commit
from .errors import CheckpointCorrupt, CheckpointError
from .manifest import MANIFEST, File, Manifest, read, refuse_removed
from .retention import folder

#: `state`: one file that holds what `torch.save` wrote. `files`: what the program wrote itself.
Kind = Literal["files", "state"]

#: A folder with more files is a data set, not a checkpoint.
MOST_FILES: Final = 10_000
#: Those of all ranks. While a step is saved again its folder has twice as many, and one of more than 100,000 is not listed.
MOST_FILES_OF_ALL: Final = 50_000
#: Folders are sorted by name, which has eight digits.
MOST_STEP: Final = 99_999_999
#: Bytes that are read at once, and how many times as many are asked for: their product is held in memory.
BLOCK_BYTES: Final = 16 << 20
AT_ONCE: Final = 8


@dataclass(frozen=True)
class Source:
    """A file to save: its path below the checkpoint, and where it is read, by its path or an open descriptor."""

    path: str
    file: Path | int


@dataclass(frozen=True)
class SavedFile:
    """`path`: the program's. `name`: in the storage."""

    path: str
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """What one rank saved. `trainer`: number of the trainer of Ray Train that has stored it; None: the program saved it."""

    rank: int
    files: tuple[SavedFile, ...]
    trainer: int | None = None

    @property
    def content(self) -> str:
        """A checksum of the paths and the files' content."""
        named = sorted((file.path, file.sha256) for file in self.files)
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()  # ASCII: a path may be no UTF-8

    def to_json(self) -> dict[str, Any]:
        return {"rank": self.rank, "files": [[file.path, file.name, file.bytes, file.sha256] for file in self.files]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Part":
        return cls(data["rank"], tuple(SavedFile(*file) for file in data["files"]))


@dataclass(frozen=True)
class Published:
    """A complete checkpoint. `kept`: steps of all complete checkpoints after it; None: not known. `digest`: its manifest's checksum."""

    path: str
    bytes: int
    kept: tuple[int, ...] | None
    digest: str


def sources(path: Path) -> list[Source]:
    """The files at `path`: itself, or all below it. Raises CheckpointError, OSError."""
    if not path.is_dir():
        if not path.exists():
            raise CheckpointError(f"{path} does not exist; write the file or folder before it is saved.")
        return [Source(path.name, path)]
    found = []
    for file in _below(path):
        found.append(Source(file.relative_to(path).as_posix(), file))
        if len(found) > MOST_FILES:
            raise CheckpointError(f"{path} has more than {MOST_FILES:,} files; save fewer, larger ones.")
    if not found:
        raise CheckpointError(f"{path} has no files; write them before it is saved.")
    return found


def _below(path: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(path, onerror=_raise):
        folders.sort()
        for name in folders:
            if (linked := Path(parent, name)).is_symlink():
                raise CheckpointError(f"{linked} is a link to a folder; save the folder itself.")
        yield from (Path(parent, name) for name in sorted(names))


def _raise(error: OSError) -> None:
    raise error


def write_part(path: Folder, rank: int, files: Sequence[Source], edition: str = "") -> Part:
    """Write a rank's files durably into the checkpoint's folder. After an error those written so far are removed.

    `edition`: the mark of this start of the ranks, in all names. Raises OSError, CheckpointError for a file that changes meanwhile.
    """
    edition += secrets.token_hex(4)
    written: list[SavedFile] = []
    name = ""
    try:
        for index, source in enumerate(files):
            name = _stored_name(rank, edition, index, source.path)
            with _unchanged(source.file) as content:
                path.write(name, content)
                checksum = hashlib.sha256()
                for block in content:
                    checksum.update(block)
                written.append(SavedFile(source.path, name, content.nbytes, checksum.hexdigest()))
    except (OSError, CheckpointError):
        discard(path, [*(file.name for file in written), name])
        raise
    return Part(rank, tuple(written))


def adopt_part(path: Folder, rank: int, source: Folder, trainer: int, edition: str = "") -> Part:
    """Make all files that a trainer of Ray Train has stored below a folder a rank's part, as `write_part`. They are copied by `copy_file`.

    Raises OSError, CheckpointError.
    """
    edition += secrets.token_hex(4)
    found = list(_stored(source))
    if not found:
        raise CheckpointError(f"{source} has no files; write them before they are reported.")
    written: list[SavedFile] = []
    name = ""
    try:
        for index, (parent, below, file, size) in enumerate(found):
            name = _stored_name(rank, edition, index, file)
            copy_file(path, name, parent, file, size)
            digest = path.sha256(name, size)
            if digest is None:
                raise CheckpointError(f"{parent}/{file} changed while it was saved; report it when it is whole.")
            written.append(SavedFile(f"{below}{file}", name, size, digest))
    except (OSError, CheckpointError):
        discard(path, [*(file.name for file in written), name])
        raise
    return Part(rank, tuple(written), trainer)


def _stored(folder: Folder, below: str = "") -> Iterator[tuple[Folder, str, str, int]]:
    """All files below a folder: the folder that has it, the path of that folder, name, bytes. Raises CheckpointError, OSError."""
    for count, (name, size) in enumerate(sorted(folder.files().items())):
        if count == MOST_FILES:
            raise CheckpointError(f"{folder} has more than {MOST_FILES:,} files; save fewer, larger ones.")
        yield folder, below, name, size
    for name in sorted(folder.folders()):
        yield from _stored(folder / name, f"{below}{name}/")


def _stored_name(rank: int, edition: str, index: int, path: str) -> str:
    tail = re.sub(r"[^A-Za-z0-9._-]", "_", PurePosixPath(path).name)[-80:]
    return f"rank-{rank:05d}-{edition}-{index:05d}-{tail}"


def discard(path: Folder, names: Sequence[str]) -> None:
    """Remove files that no manifest names, as far as the storage answers."""
    for name in names:
        try:
            path.remove(name)
        except StorageError:
            return  # each further question would take its time-out
        except OSError:
            continue


@contextlib.contextmanager
def _unchanged(file: Path | int) -> Iterator[FileContent]:
    """The content of a regular file. Raises OSError; at the end CheckpointError if the file has changed meanwhile."""
    with contextlib.ExitStack() as stack:
        handle = file if isinstance(file, int) else stack.enter_context(opened(file)).fileno()
        before = os.fstat(handle)
        try:
            yield FileContent(handle, before.st_size)
        finally:
            after = os.fstat(handle)
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                remedy = "write it whole before, under a name of its own"
                raise CheckpointError(f"{file} changed while it was saved; {remedy}.")


def publish(
    root: Folder, step: int, kind: Kind, parts: Sequence[Part], keep: int, spared: Collection[int]
) -> Published:
    """Make a checkpoint of the parts, and remove all but the newest `keep`. Those of the steps `spared` stay, too.

    Raises OSError, and CheckpointError: ranks do not wait for each other, and a save of a later step removes files of this one.
    """
    path = folder(root, step)
    if (count := sum(len(part.files) for part in parts)) > MOST_FILES_OF_ALL:
        raise CheckpointError(
            f"{path} has {count:,} files of all ranks, of at most {MOST_FILES_OF_ALL:,}; save larger ones."
        )
    files = {file.name: File(file.bytes, file.sha256, ()) for part in parts for file in part.files}
    named = [{"rank": part.rank, "paths": {file.path: file.name for file in part.files}} for part in parts]
    trainer = parts[0].trainer
    own = {"kind": kind, "parts": named} | ({} if trainer is None else {"ray_trainer": trainer})
    manifest = Manifest(step, {"program": own}, {}, files)
    digest, kept = commit(root, keep, manifest, spared)
    return Published(str(path), manifest.bytes, kept, digest)


@dataclass(frozen=True)
class SavedByProgram:
    """A complete checkpoint of a program, as its manifest has it."""

    folder: Folder
    manifest: Manifest
    kind: Kind
    parts: dict[int, dict[str, str]]  # rank → the program's path → stored name
    trainer: int | None = None  # number of the trainer of Ray Train that has stored it

    @property
    def step(self) -> int:
        return self.manifest.step

    def part(self, rank: int | None, own: int) -> int:
        """The part that is read: that of `rank`; None: that of the rank `own`, or the only one. Raises CheckpointError."""
        if rank is None and len(self.parts) == 1:
            return next(iter(self.parts))
        asked = own if rank is None else rank
        if asked not in self.parts:
            saved = f"{len(self.parts)} rank{'s' if len(self.parts) > 1 else ''}"
            remedy = "name a part that is there: resume(rank=…)"
            raise CheckpointError(f"{self.folder} has parts of {saved}, and none of rank {asked}; {remedy}.")
        return asked


def read_program(path: Folder) -> SavedByProgram:
    """The checkpoint in a folder. Raises CheckpointError, CheckpointCorrupt, StorageError."""
    try:
        manifest = read(path)
        saved = manifest.training.get("program")
        if saved is None:
            raise CheckpointError(f"{path} is the checkpoint of a training job; only training jobs read it.")
        parts = {int(part["rank"]): dict(part["paths"]) for part in saved["parts"]}
        kind, trainer = saved["kind"], saved.get("ray_trainer")
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # written by another program
        raise CheckpointCorrupt(f"{path} is corrupt: {MANIFEST} has no {error}; use an older checkpoint.") from None
    for paths in parts.values():
        for name in paths:
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise CheckpointCorrupt(f"{path} is corrupt: {name!r} is outside its folder; use an older checkpoint.")
    return SavedByProgram(path, manifest, kind, parts, trainer)


def fetch(saved: SavedByProgram, rank: int, place: Path) -> None:
    """Copy the part of `rank` to the folder `place`, with the program's own paths. It is there whole and valid, or not at all.

    Raises CheckpointCorrupt, CheckpointRemoved, StorageError, and OSError for the local disk.
    """
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that died
    try:
        for path, name in saved.parts[rank].items():
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            write_synced(target, _verified(saved, name))
            target.chmod(0o444)  # the ranks of a node share it
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _verified(saved: SavedByProgram, name: str) -> Iterator[bytearray]:
    """The blocks of a stored file. Raises what `_refuse` does if they do not match the manifest, at the latest at the end."""
    file, digest = saved.manifest.files[name], hashlib.sha256()
    starts = range(0, file.bytes, BLOCK_BYTES)
    for first in range(0, len(starts), AT_ONCE):
        for block in saved.folder.each(lambda start: _block(saved, name, start), starts[first : first + AT_ONCE]):
            digest.update(block)
            yield block
    if digest.hexdigest() != file.sha256:
        _refuse(saved, name)


def _block(saved: SavedByProgram, name: str, start: int) -> bytearray:
    """The block of a stored file that begins at `start`. Raises what `_refuse` does if the file ends before its end."""
    block = bytearray(min(BLOCK_BYTES, saved.manifest.files[name].bytes - start))
    try:
        saved.folder.read_into(name, start, memoryview(block))
    except StorageError:
        raise
    except OSError:
        _refuse(saved, name)
    return block


def check(saved: SavedByProgram, name: str, beat: Callable[[], None]) -> None:
    """Compare a stored file with the manifest. Raises what `_refuse` does if they differ, StorageError, and what `beat` raises."""
    file, digest = saved.manifest.files[name], None
    try:
        digest = saved.folder.sha256(name, file.bytes, beat)
    except StorageError:
        raise
    except OSError:
        pass  # it is not there, or no file
    if digest != file.sha256:
        _refuse(saved, name)


def _refuse(saved: SavedByProgram, name: str) -> NoReturn:
    """Raise CheckpointRemoved if a save has removed the checkpoint meanwhile, else CheckpointCorrupt; StorageError if that is not known."""
    refuse_removed(saved.folder)
    raise CheckpointCorrupt(f"{saved.folder} is corrupt: {name} does not match its checksum; use an older checkpoint.")
