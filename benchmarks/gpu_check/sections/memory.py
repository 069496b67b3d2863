"""The peak of a step against the formula and the dry run, and the model's state against 18Ψ.

A dry run needs a build of torch without CUDA. `python benchmarks/gpu.py --write-dry-runs` keeps its peaks beside this package, for
machines that have another build.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from shardyard.strategies.cost.estimate import Unknown
from shardyard.strategies.cost.memory import state_bytes
from shardyard.strategies.cost.plan import plan
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.dry_run.processes import DryRunFailed, Request, dry_runs
from shardyard.workers.gpu_models import gpu_named
from shardyard.workers.spec import TrainSpec

from ..checks import Check, Place, Skip
from ..engine import Engine
from ..link import GIB
from ..report import Line, measured
from ..sizes import FULL, Model

KEPT = Path(__file__).parents[1] / "dry_runs.json"
#: How far the measured state may be from 18Ψ, and the measured peak above what was predicted.
STATE_OFF, PEAK_OVER = 0.02, 0.05
STEPS = 3


def checks(at: Place) -> list[Check]:
    models = at.sizes.models.items()
    peaks = [Check(name, partial(_peaks, at, name, model)) for name, model in models]
    return [*peaks, *(Check(f"{name}, state", partial(_state, at, name, model)) for name, model in models)]


def _peaks(at: Place, name: str, model: Model) -> Iterator[Line]:
    formula, dry = by_formula(at, model), by_dry_run(name, model)
    yield measured(f"{name}: peak by the formula", formula / GIB, "GiB")
    if dry is not None:
        yield measured(f"{name}: peak by the dry run", dry / GIB, "GiB")
    at.needs_cuda("counter of allocated bytes")
    peak = _peak(at, model)
    yield measured(f"{name}: peak as allocated", peak / GIB, "GiB")
    yield measured(f"{name}: peak over the formula", peak / formula, "×", at_most=1 + PEAK_OVER)
    if dry is None:
        raise Skip("no dry run here, and none is kept for this size")
    yield measured(f"{name}: peak over the dry run", peak / dry, "×", at_most=1 + PEAK_OVER)
    yield measured(f"{name}: dry run over the peak", dry / peak, "×", at_most=1 + PEAK_OVER)


def by_formula(at: Place, model: Model) -> int:
    """Bytes at the peak of a step."""
    train = at.run(model.spec()).train
    setting = setting_of(train, train.model.vocab or 256, "cuda" if at.cuda else "cpu")
    if isinstance(setting, Unknown):
        raise Skip(setting.reason)
    return plan(setting).peak


def by_dry_run(name: str, model: Model) -> int | None:
    """The peak of an H100's dry run: of one here, else the one that is kept for this size."""
    try:
        return dry_run(model)
    except DryRunFailed:
        kept = json.loads(KEPT.read_text()).get(name)
        return int(kept["peak_bytes"]) if kept and kept["spec"] == _key(model) else None


def dry_run(model: Model) -> int:
    """Raises `DryRunFailed` where there can be none."""
    gpu = gpu_named("H100")
    assert gpu is not None
    (report,) = dry_runs([Request(TrainSpec.model_validate(model.spec()), 256, gpu)])
    return report.peak_bytes


def write_dry_runs() -> None:
    """Keep the peaks of all sizes."""
    found = {name: {"spec": _key(model), "peak_bytes": dry_run(model)} for name, model in FULL.models.items()}
    KEPT.write_text(json.dumps(found, indent=1) + "\n")


def _key(model: Model) -> dict[str, Any]:
    return {"model": dict(model.model), "micro_batch": model.micro_batch, "seq_len": model.seq_len}


def _state(at: Place, name: str, model: Model) -> Iterator[Line]:
    """What the probe of step 2 counts, with its hooks on the step."""
    at.needs_tried_torch("a probe")
    with Engine(at, model.spec(probe={"every": 1000})) as engine:
        engine.block(2)
        (probe,) = engine.of_kind("probe")
        held = sum(probe["memory"][part]["max"] for part in ("parameters", "gradients", "optimizer"))
        expected = state_bytes(0, engine.parts.parameters, 1)
        note = f"Ψ = {engine.parts.parameters:,}"
        losses = [record.stats.loss for record in engine.records]
    yield measured(f"{name}: model state off 18Ψ", abs(held / expected - 1), "", at_most=STATE_OFF, note=note)
    yield measured(f"{name}: loss of step 2 over step 1", losses[1] / losses[0], "×", at_most=1.05)


def _peak(at: Place, model: Model) -> int:
    """Bytes allocated at the peak of a step, after the first steps, and no other work on the device."""
    with Engine(at, model.spec()) as engine:
        engine.block(STEPS)
        torch.cuda.reset_peak_memory_stats(at.device)
        engine.block(STEPS)
        return torch.cuda.max_memory_allocated(at.device)
