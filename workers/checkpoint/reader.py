"""Reading: shards of any layout are filled from slices of any other; only their overlaps are read, and nothing is unpickled."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from ...strategies.param_shard import ParamShard, narrow
from ..storage.errors import StorageError
from ..storage.folder import Folder
from .errors import CheckpointCorrupt, CheckpointError
from .manifest import Manifest, TensorSlice, refuse_removed
from .staging_buffer import DTYPES

#: Reads a part by calling its argument, perhaps several times.
Read = Callable[[Callable[[], torch.Tensor]], torch.Tensor]

#: First coordinates and lengths of a slice.
Region = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _Part:
    """The part of a shard that one file holds."""

    file: str
    saved: TensorSlice
    shard: ParamShard
    region: Region


def load_into(
    path: Folder,
    manifest: Manifest,
    shards: Sequence[ParamShard],
    beat: Callable[[], None] = lambda: None,
    tried: Read = lambda read: read(),
) -> None:
    """Fill `shards` from the files of the checkpoint at `path`; values take the shards' dtypes.

    A shard whose name the checkpoint does not have is read by the first of its other names that the checkpoint has. `beat` and
    `tried` are called for each part that a file has of a shard, by several threads at once. Raises `CheckpointError`, `StorageError`.
    """
    wanted: dict[str, list[ParamShard]] = {}
    shards = [_as_saved(shard, manifest) for shard in shards]
    for shard in shards:
        _check(shard, manifest)
        wanted.setdefault(shard.name, []).append(shard)
    parts = list(_parts(manifest, wanted))
    missing = sum(shard.tensor.numel() for shard in shards) - sum(math.prod(part.region[1]) for part in parts)
    if missing:
        raise CheckpointError(f"{path} lacks {missing} elements of the tensors to be read.")
    path.each(partial(_load_part, path, manifest, beat, tried), parts)


def _as_saved(shard: ParamShard, manifest: Manifest) -> ParamShard:
    """`shard` with the name under which the checkpoint has its values."""
    names = (shard.name, *shard.otherwise)
    return replace(shard, name=next((name for name in names if name in manifest.tensors), shard.name))


def _check(shard: ParamShard, manifest: Manifest) -> None:
    saved = manifest.tensors.get(shard.name)
    if saved is None:
        raise CheckpointError(f"the checkpoint holds no {shard.name}: it is of another model or optimizer.")
    if saved.shape != shard.shape:
        raise CheckpointError(f"{shard.name} is {saved.shape} in the checkpoint and {shard.shape} here: another model.")


def _parts(manifest: Manifest, wanted: dict[str, list[ParamShard]]) -> Iterator[_Part]:
    for name, file in manifest.files.items():
        for saved in file.pieces:
            for shard in wanted.get(saved.name, ()):
                region = _overlap(saved, shard)
                if region is not None:
                    yield _Part(name, saved, shard, region)


@torch.no_grad()
def _load_part(path: Folder, manifest: Manifest, beat: Callable[[], None], tried: Read, part: _Part) -> None:
    """Copy one part into its shard."""
    shard, (offset, size) = part.shard, part.region
    beat()
    try:
        source = tried(lambda: _read(path, part, DTYPES[manifest.tensors[shard.name].dtype]))
    except StorageError:
        raise
    except OSError as error:
        refuse_removed(path)
        raise CheckpointCorrupt(
            f"{path} is corrupt: {part.file} cannot be read ({error}); use an older checkpoint."
        ) from error
    narrow(shard.tensor.detach(), _less(offset, shard.offset), size).copy_(source)


def _overlap(saved: TensorSlice, shard: ParamShard) -> Region | None:
    """The overlap of two slices, in the whole tensor's coordinates; None if they have none."""
    low = tuple(map(max, saved.offset, shard.offset))
    ends = zip(saved.offset, saved.size, shard.offset, shard.tensor.shape, strict=True)
    high = tuple(min(a + m, b + n) for a, m, b, n in ends)
    size = _less(high, low)
    return (low, size) if all(length > 0 for length in size) else None


def _read(path: Folder, part: _Part, dtype: torch.dtype) -> torch.Tensor:
    """A part of a saved slice. Reads whole rows, which are contiguous in the file, then narrows them."""
    saved = part.saved
    offset, size = _less(part.region[0], saved.offset), part.region[1]
    rows = torch.empty((size[0], *saved.size[1:]), dtype=dtype)
    start = saved.start + offset[0] * math.prod(saved.size[1:]) * dtype.itemsize
    path.read_into(part.file, start, rows.flatten().view(torch.uint8).numpy().data)
    return narrow(rows, (0, *offset[1:]), size)


def _less(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))
