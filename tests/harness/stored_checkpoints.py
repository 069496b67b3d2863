"""Checkpoints on a disk, and the events that report them, without a job that trained."""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardyard.workers.checkpoint.manifest import File, Manifest, PublishedManifest, encoded, read, write
from shardyard.workers.models.presets import PRESETS, Architecture
from shardyard.workers.storage.folder import Folder
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
    if arch.experts:  # whose memory is not filled when they are made
        state = {name: torch.randn(value.shape) / 10 for name, value in state.items()}
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


def save_endless_checkpoint(root: Path, step: int) -> dict[str, Any]:
    """A checkpoint of which a file has holes of a tebibyte: its comparison takes many minutes."""
    checkpoint_path(root, step).mkdir(parents=True)
    with (checkpoint_path(root, step) / FILE).open("wb") as file:
        file.truncate(1 << 40)
    return _reported(root, Manifest(step, {}, {}, {FILE: File(1 << 40, "", ())}))


def processes_reading(root: Path, step: int) -> list[int]:
    """The processes on this machine that have its file open."""
    file, found = (checkpoint_path(root, step) / FILE).resolve(), []
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has been closed since, or is another user's
            if opened.readlink() == file:
                found.append(int(opened.parts[2]))
    return found


def flip_checkpoint_bit(root: Path, step: int) -> None:
    """Flip a bit of its file."""
    file = checkpoint_path(root, step) / FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def published(path: Folder) -> PublishedManifest:
    """The manifest of a checkpoint's folder, as the process has it that published it."""
    manifest = read(path)
    return PublishedManifest(path, manifest, *encoded(manifest))


def checkpoint_path(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def _reported(root: Path, manifest: Manifest) -> dict[str, Any]:
    path = LocalFolder(str(checkpoint_path(root, manifest.step)))
    write(path, manifest)
    return {"step": manifest.step, "path": path.where, "bytes": 4_000_000, "seconds": 0.5, "held_s": 0.01}
