"""Times the passes and the update of a model of two blocks on one device: what a rank reaches there of FLOPs and memory.

A step of n sequences in one micro-batch takes n · φ / flops + 2 · block_s seconds in its passes, for φ FLOPs of a sequence. Two sizes give
both numbers. The model has the widths of the spec's, and random token ids.
"""

import time
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import torch

from ...strategies.advisor.step_time import update_bytes
from ...strategies.layout import Layout
from ...strategies.memory_options import Offload, Recompute
from ...strategies.mesh import make_mesh
from ..cost_inputs import planned_setting
from ..data.dataset import Tokens
from ..data.position import SampleOrder
from ..device_choices import DeviceKind
from ..models.flops import flops_per_token
from ..models.presets import Architecture
from ..spec import CheckpointSpec, DataSpec, Run, TrainSpec
from ..trainer.build import TrainerParts, compose
from ..trainer.device_facts import decided
from .known_hardware import Measured

_BLOCKS: Final = 2
#: Sequences of the smaller and of the larger micro-batch.
_SIZES: Final = (1, 4)
_WARM_UP: Final = 2
_ROUNDS: Final = 5


def measured(train: TrainSpec, architecture: Architecture, device: torch.device) -> Measured:
    """What a rank reaches with a model of these widths. Needs a process group of one rank."""
    few = architecture.model_copy(update={"layers": _BLOCKS})
    alone = _alone(train, few.vocab, device)
    small, large = (_timed(alone, size, few.vocab, device) for size in _SIZES)
    flops, block_s = solved(flops_per_token(few, train.data.seq_len) * train.data.seq_len, small[0], large[0])
    setting = planned_setting(alone, few, _kind(device))
    return Measured(flops, block_s, few.parameters * update_bytes(setting) / large[1])


def solved(flops: float, small_s: float, large_s: float) -> tuple[float, float]:
    """FLOP/s, and seconds of a block beside them, for the seconds of the two sizes; `flops`: of one sequence.

    If the larger one took no longer, or so much longer that a block would take less than no time, all time is that of FLOPs.
    """
    small, large = _SIZES
    if large_s > small_s:
        rate = flops * (large - small) / (large_s - small_s)
        block_s = (small_s - flops * small / rate) / _BLOCKS
        if block_s >= 0:
            return rate, block_s
    return flops * large / large_s, 0.0


def _alone(train: TrainSpec, vocab: int, device: torch.device) -> TrainSpec:
    """The spec on one rank, without what needs files, a checkpoint or another rank. Every option is decided."""
    changes = {
        "data": DataSpec(seq_len=train.data.seq_len, tokenizer=train.data.tokenizer),  # a published model has its own
        "layout": Layout(),
        "recompute": Recompute(),
        "offload": Offload(),
        "compile": False,
        "checkpoint": CheckpointSpec(),
        "resume_from": None,
    }
    plain = train.model_copy(update=changes)
    return decided(plain, plain.facts(vocab), device).train


def _timed(train: TrainSpec, sequences: int, vocab: int, device: torch.device) -> tuple[float, float]:
    """Seconds of the passes and of the update of a step of this number of sequences, the medians of several."""
    one = train.model_copy(update={"global_batch": sequences})
    nowhere = Path("nowhere")  # nothing is read or written
    run = Run(job="advise", train=one, device=_kind(device), checkpoints=str(nowhere), cache=nowhere)
    empty = np.zeros(0, dtype=np.uint8)
    order = SampleOrder("", "", one.data.seq_len, one.data.validation, one.seed)
    tokens = Tokens(order, vocab, sequences, 0.0, empty, empty)
    parts = compose(run, make_mesh(one.layout, device), tokens, _BLOCKS)
    _fill(parts)
    ids = torch.randint(vocab, (2, sequences, one.data.seq_len), device=device)
    laps = [_step(parts, ids[0], ids[1], device) for _ in range(_WARM_UP + _ROUNDS)][_WARM_UP:]
    return median(passes for passes, _ in laps), median(update for _, update in laps)


def _kind(device: torch.device) -> DeviceKind:
    return "cpu" if device.type == "cpu" else "cuda"


@torch.no_grad()
def _fill(parts: TrainerParts) -> None:
    """Small random values, so that no result is special."""
    for shard in parts.parallel.data.shards:
        shard.tensor.normal_(0.0, 0.02)
    parts.parallel.data.publish()
    parts.parallel.data.settle()


def _step(
    parts: TrainerParts, inputs: torch.Tensor, targets: torch.Tensor, device: torch.device
) -> tuple[float, float]:
    """Seconds of the passes and of the update."""
    began = _now(device)
    parts.parallel.runner.train(inputs, targets)
    parts.parallel.data.reduce()
    passed = _now(device)
    parts.parallel.runner.before_update()
    parts.optimizer.step()
    parts.parallel.data.publish()
    parts.parallel.data.settle()
    return passed - began, _now(device) - passed


def _now(device: torch.device) -> float:
    """The clock, when the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
