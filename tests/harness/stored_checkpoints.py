"""Checkpoints on a disk, and the events that report them, without a job that trained."""

import hashlib
import os
from pathlib import Path
from typing import Any

from shardyard.workers.checkpoint.manifest import File, Manifest, write
from shardyard.workers.models.presets import PRESETS, Architecture
from shardyard.workers.storage.local_folder import LocalFolder

FILE = "rank-00000"


def save_checkpoint(root: Path, step: int, content: bytes | None = None) -> dict[str, Any]:
    """A whole checkpoint that holds no tensors."""
    content = f"weights of step {step}".encode() if content is None else content
    LocalFolder(str(checkpoint_path(root, step))).write(FILE, memoryview(content))
    return _reported(root, Manifest(step, {}, {}, {FILE: File(len(content), hashlib.sha256(content).hexdigest(), ())}))


def save_model_checkpoint(root: Path, step: int, tokenizer: str = "bytes", seq_len: int = 64) -> dict[str, Any]:
    """A whole checkpoint of a small Llama, as one rank saves it that trained on sequences of `seq_len`."""
    import torch

    from shardyard.strategies.param_shard import ParamShard
    from shardyard.workers.checkpoint.staging_buffer import StagingBuffer
    from shardyard.workers.models.registry import make

    numbers: dict[str, Any] = {**PRESETS["llama"]["nano"], "layers": 1, "vocab": 256}
    arch = Architecture.model_validate(numbers)
    torch.manual_seed(step)
    shares = [
        ParamShard(name, tuple(value.shape), (0,) * value.dim(), value.detach(), frozenset())
        for name, value in make(arch).named_parameters()
    ]
    image = StagingBuffer(shares, torch.device("cpu"))
    image.take()
    content = bytes(image.content())
    LocalFolder(str(checkpoint_path(root, step))).write(FILE, memoryview(content))
    file = File(len(content), hashlib.sha256(content).hexdigest(), tuple(image.slices))
    training = {"model": arch.model_dump(), "tokenizer": tokenizer, "data": {"seq_len": seq_len}}
    return _reported(root, Manifest(step, training, image.tensors, {FILE: file}))


def save_blocked_checkpoint(root: Path, step: int) -> dict[str, Any]:
    """A checkpoint of which a file is a pipe: who compares it stands there until a writer has come and gone."""
    checkpoint_path(root, step).mkdir(parents=True)
    os.mkfifo(checkpoint_path(root, step) / FILE)
    return _reported(root, Manifest(step, {}, {}, {FILE: File(0, hashlib.sha256(b"").hexdigest(), ())}))


def unblock_checkpoint(root: Path, step: int) -> None:
    """The pipe becomes the file that the manifest lists."""
    (checkpoint_path(root, step) / FILE).unlink()
    (checkpoint_path(root, step) / FILE).touch()


def flip_checkpoint_bit(root: Path, step: int) -> None:
    """Flip a bit of its file."""
    file = checkpoint_path(root, step) / FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def checkpoint_path(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def _reported(root: Path, manifest: Manifest) -> dict[str, Any]:
    path = LocalFolder(str(checkpoint_path(root, manifest.step)))
    write(path, manifest)
    return {"step": manifest.step, "path": path.where, "bytes": 4_000_000, "seconds": 0.5, "held_s": 0.01}
