"""`deterministic: true`: two runs in a row give the same bits, of every loss and of the whole state."""

import hashlib
from collections.abc import Iterator

import torch

from shardyard.workers.trainer.determinism import compute_the_same_bits
from shardyard.workers.trainer.optimizer import optimizer_shards

from ..checks import Check, Place
from ..engine import Engine
from ..report import Line, measured

STEPS = 5


def checks(at: Place) -> list[Check]:
    """This section has a process of its own on CUDA: the libraries read their environment when they start."""
    return [Check("two runs", lambda: _twice(at))]


def _twice(at: Place) -> Iterator[Line]:
    compute_the_same_bits()
    try:
        losses, states = zip(*(_run(at) for _ in range(2)), strict=True)
    finally:
        torch.use_deterministic_algorithms(False)
    different = sum(a != b for a, b in zip(*losses, strict=True))
    yield measured("losses that differ in the second run", different, f"of {STEPS}", at_most=0)
    different = sum(a != b for a, b in zip(*states, strict=True))
    yield measured("tensors of the state that differ", different, f"of {len(states[0])}", at_most=0)


def _run(at: Place) -> tuple[list[float], list[str]]:
    """Losses of the steps, and a digest of each tensor afterwards."""
    with Engine(at, at.sizes.small.spec(deterministic=True)) as engine:
        engine.block(STEPS)
        shards = engine.parts.parallel.data.shards
        tensors = [shard.tensor for shard in (*shards, *optimizer_shards(shards, engine.parts.optimizer))]
        return [record.stats.loss for record in engine.records], [_digest(tensor) for tensor in tensors]


def _digest(tensor: torch.Tensor) -> str:
    data = tensor.detach().cpu().contiguous().view(torch.uint8)
    return hashlib.blake2b(data.numpy().tobytes(), digest_size=16).hexdigest()
