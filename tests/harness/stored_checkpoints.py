"""Checkpoints on a disk, and the events that report them, without a job that trained."""

import hashlib
import os
from collections.abc import Mapping
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


def save_model_checkpoint(
    root: Path,
    step: int,
    tokenizer: str = "bytes",
    seq_len: int = 64,
    *,
    family: str = "llama",
    numbers: Mapping[str, Any] | None = None,
    digest: str | None = None,
    documents: str | None = None,
) -> dict[str, Any]:
    """A whole checkpoint of a small decoder, as one rank saves it that trained on sequences of `seq_len`.

    `numbers` are others than the preset's. `digest` is the tokenizer's; None for it and for `documents`: an older version saved it. An
    expert's bias is its number.
    """
    import torch

    from shardyard.strategies.param_shard import ParamShard
    from shardyard.workers.checkpoint.staging_buffer import StagingBuffer
    from shardyard.workers.models.registry import make

    arch = Architecture.model_validate({**PRESETS[family]["nano"], "layers": 1, "vocab": 256, **(numbers or {})})
    torch.manual_seed(step)
    state = {name: value.detach() for name, value in make(arch).named_parameters()}
    if arch.balance == "bias":
        state["blocks.0.mlp.expert_bias"] = torch.arange(float(arch.experts or 0))
    shares = [
        ParamShard(name, tuple(value.shape), (0,) * value.dim(), value, frozenset()) for name, value in state.items()
    ]
    image = StagingBuffer(shares, torch.device("cpu"))
    image.take()
    content = bytes(image.content())
    LocalFolder(str(checkpoint_path(root, step))).write(FILE, memoryview(content))
    file = File(len(content), hashlib.sha256(content).hexdigest(), tuple(image.slices))
    data = {"seq_len": seq_len} | ({} if digest is None else {"tokenizer": digest})
    training = {"model": arch.model_dump(), "tokenizer": tokenizer, "data": data}
    training |= {} if documents is None else {"documents": documents}
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
