"""Tokens per second and MFU of published sizes, each beside a plain FSDP2 loop on the same model in turn.

Modes: bf16; bf16 with compiled blocks; fp8 with compiled blocks, as its kernels expect. A mode that cannot run here is skipped with its
reason. MFU is PaLM's, with the peak in 16 bits for fp8 too (`workers/trainer/throughput.py`).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch

from shardyard.strategies.cost.memory import state_bytes
from shardyard.workers.device_choices import OLDEST
from shardyard.workers.models.flops import flops_per_token
from shardyard.workers.trainer.device_facts import decided
from shardyard.workers.trainer.throughput import Throughput, peak_flops

from ..checks import Check, Place, Skip
from ..engine import Engine, interleaved, ratios
from ..plain_fsdp2 import PlainFsdp2
from ..report import Line, measured, ratio, skipped
from ..sizes import Model

MODES: Mapping[str, Mapping[str, Any]] = {
    "bf16": {},
    "bf16, compiled": {"compile": True},
    "fp8, compiled": {"precision": "fp8", "compile": True},
}
#: How much slower than the plain loop a step may be.
SLOWER = 1.05
#: Memory of both contenders: states, and as much for activations.
BOTH = 3


def checks(at: Place) -> list[Check]:
    modes = [
        Check(f"{name}, {mode}", partial(_of, at, f"{name}, {mode}", model, changes))
        for name, model in at.sizes.models.items()
        for mode, changes in MODES.items()
    ]
    return [Check("auto", lambda: _auto(at)), *modes]


def _auto(at: Place) -> Iterator[Line]:
    """What a spec that names neither gets on this device: bf16 and compiled blocks, where it is no older than Ampere."""
    at.needs_cuda("choice of precision and compile")
    train = at.run(at.sizes.small.spec(precision="auto", compile="auto")).train
    found = decided(train, train.facts(256), at.device)
    others = (found.train.precision.compute != "bf16") + (found.train.compile is not True)
    bound = 0 if torch.cuda.get_device_capability(at.device) >= OLDEST else None
    note = " ".join(found.reasons)
    yield measured("`auto`: options other than bf16 and compiled", others, "of 2", at_most=bound, note=note)


def _of(at: Place, name: str, model: Model, changes: Mapping[str, Any]) -> Iterator[Line]:
    if changes.get("compile"):
        at.needs_cuda("need of this line: compiled blocks are compared on GPUs")
    spec = model.spec(**changes)
    _refuse_too_large(at, spec)
    with Engine(at, spec) as ours:
        plain = PlainFsdp2(at, spec)
        pairs = interleaved(at, ours.block, plain.block)
        arch, tokens = ours.parts.architecture, model.micro_batch * model.seq_len
        device = torch.cuda.get_device_name(at.device) if at.cuda else "cpu"
    assert arch is not None
    for who, seconds in zip(("ours", "plain FSDP2"), zip(*pairs, strict=True), strict=True):
        step_s = median(seconds)
        speed = Throughput(1, flops_per_token(arch, model.seq_len), peak_flops(device, "bf16")).of(tokens, step_s)
        note = f"{1e3 * step_s:.1f} ms per step"
        yield measured(f"{name}: {who}", speed["tokens_per_s"] or 0.0, "tokens/s", note=note)
        if speed["mfu"] is None:
            yield skipped(f"{name}: {who}, MFU", f"no peak FLOP/s is known for {device}")
        else:
            yield measured(f"{name}: {who}, MFU", 100 * speed["mfu"], "%")
    bound = SLOWER if at.cuda else None
    yield ratio(f"{name}: our step over the plain loop's", ratios(pairs), at_most=bound)


def _refuse_too_large(at: Place, spec: Mapping[str, Any]) -> None:
    """Raises `Skip` where the device cannot hold both contenders."""
    if not at.cuda:
        return
    train = at.run(spec).train
    arch = train.architecture(256)
    assert arch is not None
    needed, (free, _) = BOTH * state_bytes(0, arch.parameters, 1), torch.cuda.mem_get_info(at.device)
    if needed > free:
        raise Skip(
            f"both contenders need about {needed / 2**30:.0f} GiB, and {free / 2**30:.0f} GiB of the device are free"
        )
