"""Checkpoints: a folder per step, written by all ranks with torch's DCP, complete when its `manifest.json` is there, which is written last.

Pieces are stored by parameter name, whole shape and offset, so that a checkpoint of any layout loads into any other. A folder without a
manifest is a save that was cut off: it is ignored and overwritten.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from ..strategies.mesh import Mesh
from ..strategies.piece import Piece, narrow

MANIFEST = "manifest.json"
FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with what to do about it."""

    code = "checkpoint_unusable"


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    step: int
    path: Path
    bytes: int
    seconds: float


def save(root: Path, step: int, pieces: Sequence[Piece], training: dict[str, Any], mesh: Mesh) -> Saved:
    """Write the checkpoint of `step` below `root`. Collective; returns when the manifest is on disk."""
    started = time.monotonic()
    path = root / f"step-{step:08d}"
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    dist.barrier()
    writer = FileSystemWriter(path, single_file_per_rank=True, sync_files=True, thread_count=1, overwrite=True)
    dcp_save({}, storage_writer=writer, planner=_SavePieces(pieces, mesh))
    own = {file.name: _checksum(file) for file in path.glob(f"__{dist.get_rank()}_*")}
    gathered: list[dict[str, Any]] | None = [{}] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(own, gathered)
    if gathered is not None:
        files = {name: entry for part in gathered for name, entry in part.items()}
        files[".metadata"] = _checksum(path / ".metadata")
        _write_manifest(path, {"format": FORMAT, "step": step, "training": training, "files": files})
    dist.barrier()
    size = sum(entry["bytes"] for entry in read_manifest(path)["files"].values())
    return Saved(step, path, size, time.monotonic() - started)


def load(path: Path, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Fill `pieces` from the checkpoint at `path` and return its training state. Collective. Raises `CheckpointError`."""
    manifest = read_manifest(path)
    _verify(path, manifest)
    dcp_load({}, storage_reader=FileSystemReader(path), planner=_LoadPieces(pieces))
    training: dict[str, Any] = manifest["training"]
    return training


def read_pieces(path: Path, pieces: Sequence[Piece]) -> None:
    """Fill `pieces` in one process, without process groups; values take the pieces' dtypes. Raises `CheckpointError`."""
    reader, planner = FileSystemReader(path), _LoadPieces(pieces)
    metadata = reader.read_metadata()
    planner.set_up_planner({}, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(reader.prepare_local_plan(planner.create_local_plan()), planner).wait()


def complete(root: Path) -> list[Path]:
    """The complete checkpoints below `root`, newest first."""
    return sorted((m.parent for m in root.glob(f"step-*/{MANIFEST}")), reverse=True)


def prune(root: Path, keep: int) -> None:
    """Remove all but the newest `keep`; the manifest goes first, so that a half-removed one is never believed."""
    for path in complete(root)[keep:]:
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a complete checkpoint. Raises `CheckpointError`."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} holds no complete checkpoint ({MANIFEST} is missing); name a step-… folder that has one."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / MANIFEST} cannot be read: {error}; use an older checkpoint.") from error
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {manifest.get('format')}, this version reads {FORMAT}.")
    return dict(manifest)


def _verify(path: Path, manifest: dict[str, Any]) -> None:
    """Each rank checks its share of the files; all ranks learn of a damaged one, so that none waits for the others."""
    names = sorted(manifest["files"])[dist.get_rank() :: dist.get_world_size()]
    bad = _damaged(path, manifest, names)
    found: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(found, bad)
    _refuse_damaged(path, [name for part in found for name in part])


def verify(path: Path, manifest: dict[str, Any]) -> None:
    """Check all files against their checksums, in one process. Raises `CheckpointError`."""
    _refuse_damaged(path, _damaged(path, manifest, sorted(manifest["files"])))


def _damaged(path: Path, manifest: dict[str, Any], names: Iterable[str]) -> list[str]:
    return [name for name in names if not _matches(path / name, manifest["files"][name])]


def _refuse_damaged(path: Path, damaged: Sequence[str]) -> None:
    if damaged:
        raise CheckpointError(
            f"{path} is damaged: {', '.join(damaged)} does not match its checksum; use an older checkpoint."
        )


def _matches(file: Path, entry: dict[str, Any]) -> bool:
    return file.is_file() and file.stat().st_size == entry["bytes"] and _checksum(file) == entry


def _checksum(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    temporary = path / f"{MANIFEST}.tmp"
    with temporary.open("w") as out:
        json.dump(manifest, out)
        out.flush()
        os.fsync(out.fileno())
    _sync_folder(path)
    temporary.rename(path / MANIFEST)
    _sync_folder(path)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _chunk(piece: Piece) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(piece.offset), piece.tensor.shape)


class _SavePieces(DefaultSavePlanner):
    """Each rectangle is written by the one rank that owns it."""

    def __init__(self, pieces: Iterable[Piece], mesh: Mesh) -> None:
        super().__init__(flatten_state_dict=False)
        self._pieces = {piece.name: piece for piece in pieces if piece.owned(mesh)}

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([self._item(piece) for piece in self._pieces.values()])
        return self.plan

    def _item(self, piece: Piece) -> WriteItem:
        data = TensorWriteData(
            _chunk(piece), TensorProperties.create_from_tensor(piece.tensor), torch.Size(piece.shape)
        )
        return WriteItem(MetadataIndex(piece.name, torch.Size(piece.offset)), WriteItemType.SHARD, tensor_data=data)

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        return self._pieces[index.fqn].tensor.detach()


class _LoadPieces(DefaultLoadPlanner):
    """Each rank reads the overlaps of its pieces with what was saved, whatever the layout that saved it."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        super().__init__(flatten_state_dict=False)
        self._pieces = {piece.name: piece for piece in pieces}

    def set_up_planner(self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        del state_dict  # the pieces are the state
        self.metadata, self.is_coordinator = metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        items: list[ReadItem] = []
        for piece in self._pieces.values():
            items += create_read_items_for_chunk_list(piece.name, self._saved(piece), [_chunk(piece)])
        return LoadPlan(items)

    def _saved(self, piece: Piece) -> TensorStorageMetadata:
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata.get(piece.name)
        if not isinstance(saved, TensorStorageMetadata):
            raise CheckpointError(f"the checkpoint holds no {piece.name}: it is of another model or optimizer.")
        if tuple(saved.size) != piece.shape:
            raise CheckpointError(
                f"{piece.name} is {tuple(saved.size)} in the checkpoint and {piece.shape} here: another model."
            )
        return saved

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        tensor = self._pieces[read_item.dest_index.fqn].tensor.detach()
        return narrow(tensor, read_item.dest_offsets, read_item.lengths)
