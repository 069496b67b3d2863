"""The first probe of an attempt on GPUs reports a peak that is off the memory plan, once."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardyard.strategies.telemetry.wait_time import StepTiming
from shardyard.workers.spec import TrainSpec
from shardyard.workers.trainer.callbacks import probe
from shardyard.workers.trainer.callbacks.probe import StepProbe
from shardyard.workers.trainer.instruments import Instruments

SPEC = TrainSpec.model_validate(
    {
        "model": {"preset": "1.3B", "vocab": 32_000},
        "data": {"seq_len": 1024},
        "steps": 9,
        "global_batch": 8,
        "probe": {"every": 3},
    }
)


class Reports:
    """The reporter: keeps what it is given."""

    def __init__(self) -> None:
        self.incidents: list[tuple[str, str, int | None]] = []
        self.of_job = [].append

    def incident(self, cause: str, message: str, step: int | None = None) -> None:
        self.incidents.append((cause, message, step))


def incidents(monkeypatch: pytest.MonkeyPatch, again: bool, **memory: int) -> list[tuple[str, str, int | None]]:
    """What the probes of six steps report if each measures `memory`."""

    class Measured:
        def __init__(self, parts: Any) -> None: ...

        computing = staticmethod(nullcontext)

        def record(self, timing: StepTiming) -> dict[str, Any]:
            held = {kind: {"min": size, "max": size} for kind, size in memory.items()}
            return {"traffic": {}, "traffic_sum": {}, "memory": held, "busy_s": [1.0], "wait_s": [0.0]}

    monkeypatch.setattr(probe, "Probe", Measured)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    mesh = SimpleNamespace(device=torch.device("cuda"))
    parts, reports = SimpleNamespace(spec=SPEC, architecture=SPEC.architecture(32_000), mesh=mesh), Reports()
    callback = StepProbe(parts, reports, Instruments(), again)  # type: ignore[arg-type]
    for step in range(1, 7):
        callback.before_step(step)
        stats = SimpleNamespace(timing=StepTiming(1.0, 0.0))
        callback.after_step(SimpleNamespace(step=step, stats=stats))  # type: ignore[arg-type]
    return reports.incidents


def test_a_peak_off_the_plan_is_reported_by_the_first_probe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    [(cause, message, step)] = incidents(monkeypatch, again=False, allocated=1 << 40)
    assert (cause, step) == ("memory_off_plan", 2)
    assert "above the" in message


def test_a_repaired_attempt_has_reported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert incidents(monkeypatch, again=True, allocated=1 << 40) == []


def test_cpu_ranks_measure_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert incidents(monkeypatch, again=False, parameters=1 << 40) == []
