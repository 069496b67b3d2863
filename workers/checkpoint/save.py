"""Saving: every rank writes one file of the pieces that it owns; rank 0 makes them a checkpoint when all lie on the disk."""

import hashlib
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ...strategies.mesh import Mesh
from ...strategies.piece import Piece
from .image import Image
from .manifest import File, Manifest, Tensor, sync_folder, write
from .shelf import clear, folder, prune


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    step: int
    path: Path
    bytes: int
    seconds: float


class Saver:
    """Writes one rank's share of checkpoints below `root`, of which the newest `keep` stay."""

    def __init__(self, root: Path, keep: int, pieces: Sequence[Piece], mesh: Mesh) -> None:
        self._root, self._keep = root, keep
        self._pieces = [piece for piece in pieces if piece.owned(mesh)]
        self._image: Image | None = None
        self._edition = ""

    def save(self, step: int, training: Mapping[str, Any]) -> Saved:
        """Write the checkpoint of `step`. Collective; returns when its manifest is on disk."""
        began = time.monotonic()
        image = self._prepared()
        image.take()
        path = folder(self._root, step)
        own = (image.tensors, self._write(path, image))
        parts: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(own, parts)
        size = [0]
        if parts is not None:
            manifest = _manifest(step, training, parts)
            write(path, manifest)
            clear(path, manifest)
            prune(self._root, self._keep, path)
            size = [manifest.bytes]
        dist.broadcast_object_list(size, src=0)
        return Saved(step, path, size[0], time.monotonic() - began)

    def _prepared(self) -> Image:
        """The memory of this rank's file, and the same mark on all ranks' file names: two saves of one step never mix. Collective."""
        if self._image is None:
            edition = [uuid.uuid4().hex[:8]]
            dist.broadcast_object_list(edition, src=0)
            self._image, self._edition = Image(self._pieces), edition[0]
        return self._image

    def _write(self, path: Path, image: Image) -> dict[str, File]:
        """This rank's file, by name; none where it owns nothing."""
        path.mkdir(parents=True, exist_ok=True)
        if not image.rectangles:
            return {}
        name = f"rank-{dist.get_rank():05d}-{self._edition}.safetensors"
        content = image.memory.numpy().data
        with (path / name).open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        sync_folder(path)
        return {name: File(len(content), hashlib.sha256(content).hexdigest(), tuple(image.rectangles))}


def _manifest(
    step: int, training: Mapping[str, Any], parts: Sequence[tuple[dict[str, Tensor], dict[str, File]]]
) -> Manifest:
    tensors: dict[str, Tensor] = {}
    files: dict[str, File] = {}
    for some_tensors, some_files in parts:
        tensors |= some_tensors
        files |= some_files
    return Manifest(step, training, tensors, files)
