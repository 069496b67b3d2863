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
from .errors import CheckpointCorrupt, CheckpointError

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
        return digest(_body(self))


def text(manifest: Manifest) -> bytes:
    """The manifest as it is stored."""
    return _canonical(_body(manifest) | {"sha256": manifest.sha256})


def _body(manifest: Manifest) -> dict[str, Any]:
    """All but the checksum, for JSON. Nothing is copied: a thousand ranks have two million slices, of which `asdict` would copy each."""
    files = {
        name: {"bytes": file.bytes, "sha256": file.sha256, "pieces": file.pieces}
        for name, file in manifest.files.items()
    }
    tensors = {name: {"dtype": tensor.dtype, "shape": tensor.shape} for name, tensor in manifest.tensors.items()}
    return {"format": FORMAT, "step": manifest.step, "training": manifest.training, "tensors": tensors, "files": files}


def digest(body: Mapping[str, Any]) -> str:
    """The checksum of a manifest's content."""
    return hashlib.sha256(_canonical(body)).hexdigest()


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def write(folder: Folder, manifest: Manifest) -> str:
    """Make a checkpoint of the files in the folder: the manifest is published after them, whole or not at all. Returns its checksum."""
    # A rank 0 that was cut off lives as long as its lease, and may save the step that its successor saves.
    folder.publish(MANIFEST, text(manifest), many_writers=True)
    return manifest.sha256


def read(path: Folder) -> Manifest:
    """The manifest of the checkpoint in the folder `path`. Raises `CheckpointCorrupt`, `CheckpointError`, `StorageError`."""
    try:
        content = path.read(MANIFEST)
    except StorageError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"{path} holds no complete checkpoint ({MANIFEST} is missing); name a step-… folder that has one."
        ) from None
    except OSError as error:
        raise CheckpointCorrupt(
            f"{path} is corrupt: {MANIFEST} cannot be read ({error}); use an older checkpoint."
        ) from error
    return parsed(content, path)


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
