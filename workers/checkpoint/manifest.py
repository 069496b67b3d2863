"""The manifest of a checkpoint: its content, with checksums. It is written last, whole or not at all, and has a checksum of its own.

Its `sha256` is that of everything else in it as canonical JSON (sorted keys, no spaces, ASCII). So any change of its bytes is detected,
or does not change what is read.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from ..storage.errors import StorageError
from ..storage.folder import Folder
from .errors import CheckpointAbsent, CheckpointCorrupt, CheckpointError, CheckpointRemoved

MANIFEST: Final = "manifest.json"
FORMAT: Final = 3


class TensorSlice(NamedTuple):
    """The slice of the tensor `name` at `offset`, of shape `size`. It begins at byte `start` of a file."""

    name: str
    offset: tuple[int, ...]
    size: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Tensor:
    """A whole tensor: its safetensors dtype and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class File:
    """One rank's file and the slices in it."""

    bytes: int
    sha256: str
    pieces: tuple[TensorSlice, ...]  # the name in stored manifests


@dataclass(frozen=True)
class Manifest:
    """`training`: the state beside the tensors. `tensors`: all saved tensors, by name. `files`: the files that hold them, by file name."""

    step: int
    training: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    files: Mapping[str, File]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    @cached_property
    def sha256(self) -> str:
        """The checksum that it has in its file."""
        return encoded(self)[1]


@dataclass(frozen=True)
class PublishedManifest:
    """A manifest that was published in a folder, with the content and the checksum that it had then."""

    folder: Folder
    manifest: Manifest
    content: bytes
    sha256: str

    def is_there(self) -> bool:
        """Whether the folder has it now as it was published. Raises StorageError."""
        try:
            return self.folder.read(MANIFEST) == self.content
        except StorageError:
            raise
        except OSError:  # it was removed, or its content cannot be read
            return False


def encoded(manifest: Manifest) -> tuple[bytes, str]:
    """The manifest as it is stored, and its checksum.

    Rank 0 trains beside this, and the encoder holds the interpreter lock. A thousand ranks have two million slices. So none is copied, each
    is encoded once, and the lock can be taken between two files.
    """
    files = {
        name: _canonical({"bytes": file.bytes, "sha256": file.sha256, "pieces": file.pieces})
        for name, file in manifest.files.items()
    }
    tensors = {name: {"dtype": tensor.dtype, "shape": tensor.shape} for name, tensor in manifest.tensors.items()}
    others = {"format": FORMAT, "step": manifest.step, "training": manifest.training, "tensors": tensors}
    body = {name: _canonical(value) for name, value in others.items()} | {"files": _joined(files)}
    checksum = hashlib.sha256(_joined(body)).hexdigest()
    return _joined(body | {"sha256": _canonical(checksum)}), checksum


def _joined(fields: Mapping[str, bytes]) -> bytes:
    """The canonical JSON object of values that are canonical JSON."""
    return b"{%b}" % b",".join(b"%b:%b" % (_canonical(name), fields[name]) for name in sorted(fields))


def digest(body: Mapping[str, Any]) -> str:
    """The checksum of a manifest's content."""
    return hashlib.sha256(_canonical(body)).hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def write(folder: Folder, manifest: Manifest) -> PublishedManifest:
    """Make a checkpoint of the files in the folder: the manifest is published after them, whole or not at all."""
    content, checksum = encoded(manifest)
    # A rank 0 that was cut off lives as long as its lease, and may save the step that its successor saves.
    folder.publish(MANIFEST, content, many_writers=True)
    return PublishedManifest(folder, manifest, content, checksum)


def read(path: Folder) -> Manifest:
    """The manifest of the checkpoint in the folder `path`.

    Raises `CheckpointAbsent`, `CheckpointCorrupt`, `CheckpointError`, `StorageError`.
    """
    try:
        content = path.read(MANIFEST)
    except StorageError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointAbsent(
            f"{path} holds no complete checkpoint ({MANIFEST} is missing); name a step-… folder that has one.",
            path.name,
        ) from None
    except OSError as error:
        raise CheckpointCorrupt(
            f"{path} is corrupt: {MANIFEST} cannot be read ({error}); use an older checkpoint."
        ) from error
    return parsed(content, path)


def refuse_removed(path: Folder) -> None:
    """Raise `CheckpointRemoved` if the manifest is gone: a removal takes it first, so a file that does not match it is not damaged.

    Raises `StorageError`, too.
    """
    if not path.has(MANIFEST):
        raise CheckpointRemoved(f"{path} was removed, to make room; take a newer one.", path.name)


def parsed(content: bytes, path: Folder) -> Manifest:
    """The manifest that has this content in the folder `path`. Raises `CheckpointCorrupt`, `CheckpointError`."""
    body = checked(content, path)
    try:
        return _manifest(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # written by another program
        raise CheckpointCorrupt(f"{path} is corrupt: {MANIFEST} has no {error}; use an older checkpoint.") from None


def checked(content: bytes, path: Folder | str) -> dict[str, Any]:
    """The parsed content, `sha256` included: unchanged since it was written. Raises `CheckpointCorrupt`, `CheckpointError`."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    checksum = body.pop("sha256", None) if isinstance(body, dict) else None
    if isinstance(body, dict) and checksum is None and body.get("format") == 1:
        raise _other_format(path, 1)
    if not isinstance(body, dict) or checksum != digest(body):
        raise CheckpointCorrupt(f"{path} is corrupt: {MANIFEST} does not match its checksum; use an older checkpoint.")
    if body.get("format") != FORMAT:
        raise _other_format(path, body.get("format"))
    return body | {"sha256": checksum}


def _other_format(path: Folder | str, found: object) -> CheckpointError:
    age = "an older" if isinstance(found, int) and found < FORMAT else "another"
    return CheckpointError(
        f"{path} has format {found}, of {age} version, and this version reads {FORMAT}; use the version that saved it."
    )


def _manifest(body: Mapping[str, Any]) -> Manifest:
    if not isinstance(body["step"], int) or not isinstance(body["training"], dict):
        raise TypeError("step or training state")
    tensors = {name: Tensor(entry["dtype"], tuple(entry["shape"])) for name, entry in body["tensors"].items()}
    files = {name: _file(entry) for name, entry in body["files"].items()}
    return Manifest(body["step"], body["training"], tensors, files)


def _file(entry: Mapping[str, Any]) -> File:
    pieces = [TensorSlice(name, tuple(offset), tuple(size), start) for name, offset, size, start in entry["pieces"]]
    return File(entry["bytes"], entry["sha256"], tuple(pieces))
