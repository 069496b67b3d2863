"""Slices of one cut are read into slices of another; each file is one that safetensors reads."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from shardyard.strategies.param_shard import ParamShard, narrow
from shardyard.workers.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRemoved
from shardyard.workers.checkpoint.manifest import MANIFEST, File, Manifest
from shardyard.workers.checkpoint.reader import load_into
from shardyard.workers.checkpoint.staging_buffer import StagingBuffer
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder

Slices = list[tuple[tuple[int, ...], tuple[int, ...]]]


def stored(folder: Folder, wholes: dict[str, torch.Tensor], cut: Slices) -> Manifest:
    """A checkpoint of which each file holds one slice of every tensor."""
    tensors, files = {}, {}
    for number, (offset, size) in enumerate(cut):
        shards = [
            ParamShard(name, tuple(whole.shape), offset, narrow(whole, offset, size), frozenset())
            for name, whole in wholes.items()
        ]
        image = StagingBuffer(shards, torch.device("cpu"))
        image.take()
        folder.write(f"{number}", image.content())
        tensors |= image.tensors
        files[f"{number}"] = File(len(image.content()), "", tuple(image.slices))
    return Manifest(1, {}, tensors, files)


def cuts(shape: tuple[int, ...]) -> st.SearchStrategy[Slices]:
    """Slices that cover the shape: each dimension cut somewhere, or not."""
    along = [st.integers(0, n).map(lambda at, n=n: [(0, at), (at, n - at)]) for n in shape]
    return st.tuples(*along).map(
        lambda parts: [(tuple(o for o, _ in box), tuple(n for _, n in box)) for box in product(*parts)]
    )


SHAPE = (5, 4, 3)


@settings(max_examples=50, deadline=None)
@given(cuts(SHAPE), cuts(SHAPE))
def test_any_cut_is_read_into_any_other(
    tmp_path_factory: pytest.TempPathFactory, written: Slices, wanted: Slices
) -> None:
    folder = LocalFolder(str(tmp_path_factory.mktemp("cut")))
    wholes = {name: torch.randn(SHAPE).to(dtype) for name, dtype in (("a", torch.bfloat16), ("b", torch.float64))}
    manifest = stored(folder, wholes, written)
    shards = [
        ParamShard(name, SHAPE, offset, torch.full(size, torch.nan, dtype=whole.dtype), frozenset())
        for name, whole in wholes.items()
        for offset, size in wanted
    ]
    load_into(folder, manifest, shards)
    for shard in shards:
        assert torch.equal(shard.tensor, narrow(wholes[shard.name], shard.offset, shard.tensor.shape))


def test_a_file_is_a_safetensors_file(tmp_path: Path) -> None:
    wholes = {"odd": torch.randn(3).to(torch.bfloat16), "wide": torch.randn(3, dtype=torch.float64)}
    stored(LocalFolder(str(tmp_path)), wholes, [((0,), (3,))])
    read = load_file(tmp_path / "0")
    assert read.keys() == wholes.keys()
    assert all(torch.equal(read[name], whole) for name, whole in wholes.items())


def test_values_take_the_type_of_the_piece(root: Folder) -> None:
    whole = torch.randn(4, 2, dtype=torch.float64)
    manifest = stored(root, {"a": whole}, [((0, 0), (4, 2))])
    shard = ParamShard("a", (4, 2), (1, 0), torch.empty(2, 2, dtype=torch.float32), frozenset())
    load_into(root, manifest, [shard])
    assert torch.equal(shard.tensor, whole[1:3].float())


def test_a_shard_is_read_by_the_first_of_its_names_that_is_there(root: Folder) -> None:
    wholes = {name: torch.randn(4, 2) for name in ("newest", "older")}
    manifest = stored(root, wholes, [((0, 0), (4, 2))])
    shards = [
        ParamShard(name, (4, 2), (0, 0), torch.empty(4, 2), frozenset(), otherwise=otherwise)
        for name, otherwise in (("older", ("newest",)), ("oldest", ("older", "newest")), ("other", ("none", "newest")))
    ]
    load_into(root, manifest, shards)
    for shard, name in zip(shards, ("older", "older", "newest"), strict=True):
        assert torch.equal(shard.tensor, wholes[name]), shard.name
    with pytest.raises(CheckpointError, match=r"holds no other: .* another model"):
        load_into(root, manifest, [replace(shards[2], otherwise=("none",))])


def test_what_is_not_there_is_said(root: Folder) -> None:
    manifest = stored(root, {"a": torch.randn(4, 2)}, [((0, 0), (2, 2)), ((2, 0), (2, 2))])
    whole = ParamShard("a", (4, 2), (0, 0), torch.empty(4, 2), frozenset())
    half = replace(manifest, files={"0": manifest.files["0"]})
    with pytest.raises(CheckpointError, match="lacks 4 elements"):
        load_into(root, half, [whole])
    with pytest.raises(CheckpointError, match=r"holds no b: .* another model"):
        load_into(root, manifest, [replace(whole, name="b")])
    with pytest.raises(CheckpointError, match="another model"):
        load_into(root, manifest, [replace(whole, shape=(8, 2))])
    root.publish(MANIFEST, b"{}")
    root.publish("1", root.read("1")[:-1])
    with pytest.raises(CheckpointCorrupt, match="1 cannot be read"):
        load_into(root, manifest, [whole])


def test_a_checkpoint_that_is_removed_while_it_is_read_is_not_corrupt(root: Folder) -> None:
    """Retention removes the manifest first. What is corrupt stays so in the list of the job's checkpoints."""
    manifest = stored(root, {"a": torch.randn(4, 2)}, [((0, 0), (2, 2)), ((2, 0), (2, 2))])
    root.remove("1")
    with pytest.raises(CheckpointRemoved, match="removed, to make room"):
        load_into(root, manifest, [ParamShard("a", (4, 2), (0, 0), torch.empty(4, 2), frozenset())])
