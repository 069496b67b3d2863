"""No change of a checkpoint's files yields wrong training: it is noticed, or what is read is what was saved, bit for bit."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.ranks import train

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.checkpoint.errors import CheckpointCorrupt
from shardyard.workers.checkpoint.manifest import Manifest, read
from shardyard.workers.checkpoint.reader import load_into
from shardyard.workers.checkpoint.staging_buffer import DTYPES
from shardyard.workers.checkpoint.verify import verify
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at

CHANGES = 1000


@pytest.fixture(scope="module")
def checkpoint(root: Path, make_spec: Callable[..., Any]) -> Path:
    model = {"preset": "nano", "layers": 1, "dim": 16, "heads": 2, "kv_heads": 1, "hidden": 32}
    spec = make_spec({"data": 2, "zero": 1}, model=model, steps=2, precision="bf16", checkpoint={})
    train(spec, root, "to-be-damaged")
    return root / "checkpoints" / "to-be-damaged" / "step-00000002"


def test_a_thousand_changes_are_noticed_or_harmless(checkpoint: Path) -> None:
    place = folder_at(checkpoint)
    saved = loaded(place)
    files = sorted(checkpoint.iterdir())
    assert [file.name.partition("-")[0] for file in files] == ["manifest.json", "rank", "rank"]
    random_ = random.Random(1)
    noticed = dict.fromkeys(files, 0)
    drawn = dict.fromkeys(files, 0)
    for _ in range(CHANGES):
        victim = random_.choice(files)
        content = victim.read_bytes()
        victim.write_bytes(changed(content, random_))
        drawn[victim] += 1
        try:
            assert same(loaded(place), saved)
        except CheckpointCorrupt as error:
            assert victim.name in str(error)
            noticed[victim] += 1
        finally:
            victim.write_bytes(content)
    manifest, *others = files
    assert [noticed[file] for file in others] == [drawn[file] for file in others]
    assert noticed[manifest] > 0  # others of its changes leave its meaning as it was
    assert same(loaded(place), saved)


def changed(content: bytes, random_: random.Random) -> bytes:
    """One byte is another, or the end is missing."""
    at = random_.randrange(len(content))
    if random_.random() < 0.5:
        return content[:at]
    return content[:at] + bytes([content[at] ^ random_.randrange(1, 256)]) + content[at + 1 :]


def loaded(checkpoint: Folder) -> tuple[Manifest, dict[str, torch.Tensor]]:
    manifest = read(checkpoint)
    verify(checkpoint, manifest)
    shards = [
        ParamShard(
            name, said.shape, (0,) * len(said.shape), torch.empty(said.shape, dtype=DTYPES[said.dtype]), frozenset()
        )
        for name, said in manifest.tensors.items()
    ]
    load_into(checkpoint, manifest, shards)
    return manifest, {shard.name: shard.tensor for shard in shards}


def same(one: Any, other: Any) -> bool:
    return bool(one[0] == other[0]) and all(
        torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        for a, b in zip(one[1].values(), other[1].values(), strict=True)
    )
