"""On every layout a rank that is slow is the one whose own time is long: the others wait for it, and their clocks know that."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import LLAMA, MIXTURE
from harness.ranks import group, spawn

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

#: Long beside a step of such a small model, however busy the machine is.
SLOW_S = 0.5
STEPS = 5

#: (layout, changes of the spec, where the rank is slow)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "data2": ({"data": 2}, {}, "between steps"),
    "zero1": ({"data": 2, "zero": 1}, {}, "in the forward pass"),
    "zero2": ({"data": 2, "zero": 2, "micro_batch": 2}, {}, "between steps"),
    "zero3": ({"data": 4, "zero": 3}, {}, "in the forward pass"),
    "tensor2": ({"tensor": 2, "data": 2}, {}, "between steps"),
    "tensor2-tied": (
        {"tensor": 2, "sequence": False},
        {"model": {**LLAMA, "layers": 2, "tied": True}},
        "between steps",
    ),
    "1f1b2": ({"pipeline": 2}, {}, "in the forward pass"),
    "1f1b2-data2-zero1": ({"pipeline": 2, "data": 2, "zero": 1}, {}, "between steps"),
    "zbv2-tensor2": ({"pipeline": 2, "schedule": "zbv", "tensor": 2}, {}, "between steps"),
    "ring2": ({"context": 2}, {}, "between steps"),
    "experts2": ({"data": 2, "expert": 2}, {"model": {**MIXTURE, "layers": 2}}, "between steps"),
}


@pytest.mark.timing
@pytest.mark.parametrize("name", CASES)
def test_the_others_wait_for_the_slow_rank(name: str, root: Path, make_spec: Make) -> None:
    layout, changes, where = CASES[name]
    small = {"steps": STEPS, "eval": {"batches": 1}, "probe": {"every": STEPS}, "global_batch": 8, "precision": "fp32"}
    spec = TrainSpec.model_validate(make_spec(layout, **small, **changes))
    run = Run(job=name, train=spec, checkpoints=root / "checkpoints" / name, cache=root / "cache")
    reported = spawn(slowed, spec.layout.world_size, run.model_dump_json(), where)
    own = [[s["busy_s"] for kind, s in events if kind == "step"][2:] for events in reported]
    waited = [[s["wait_s"] for kind, s in events if kind == "step"][2:] for events in reported]
    assert min(own[1]) >= SLOW_S, own
    for rank in set(range(len(reported))) - {1}:
        assert statistics.median(own[1]) - statistics.median(own[rank]) > SLOW_S / 2, own
        assert statistics.median(waited[rank]) > SLOW_S / 2, waited
    probes = [data for kind, data in reported[0] if kind == "probe"]
    assert [data["busy_s"][1] for data in probes] == [
        s["busy_s"] for kind, s in reported[1] if kind == "step" and s["step"] in (2, STEPS)
    ]
    assert all(len(data["wait_s"]) == len(reported) for data in probes)


def slowed(rank: int, world: int, port: int, orders: str, where: str) -> list[Any]:
    """One rank's events; rank 1 sleeps in each step."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.messages.stop_request import StopRequest
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.instruments import Instruments

    run = Run.model_validate_json(orders)
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    events: list[Any] = []
    late = {"in the forward pass": False}

    def stop() -> Any:
        late["in the forward pass"] = rank == 1 and where == "in the forward pass"
        if rank == 1 and where == "between steps":
            time.sleep(SLOW_S)
        return StopRequest.NO

    def forward(*_: Any) -> None:
        if late["in the forward pass"]:
            late["in the forward pass"] = False
            time.sleep(SLOW_S)

    list(built.parallel.parts[-1].children())[-1].register_forward_pre_hook(forward)
    assemble(built, lambda kind, data: events.append((kind, data)), Instruments(stop)).run()
    return events
