"""Under a pipeline gradients are reduced during a stage's last backward pass, between its messages, in one order on all ranks."""

from typing import Any

import pytest
from harness.dry_run import DryRunner

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.zero_bubble import HANDCRAFTED
from shardyard.workers.dry_run.processes import disagreements
from shardyard.workers.dry_run.report import DryRun

NARROW = {"compute": "bf16", "gradients": "compute"}
TIED = {"model": {"preset": "nano", "tied": True}}


def _layout(schedule: str, zero: int, **more: int) -> dict[str, Any]:
    return {"pipeline": 2, "schedule": schedule, "data": 2, "zero": zero, "micro_batch": 1, **more}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1f1b-zero1": (_layout("1f1b", 1), {"model": {"preset": "nano", "layers": 2}}),
    "interleaved-zb-zero2": (_layout("interleaved-zb", 2), {"precision": NARROW}),
    "1f1b-zero0": (_layout("1f1b", 0), {}),
    "1f1b-zero1-tied": (_layout("1f1b", 1), TIED),
    "gpipe-zero2": (_layout("gpipe", 2), {}),
    "interleaved-zero1": (_layout("interleaved", 1), {}),
    "interleaved-zb-zero1-tensor2": (_layout("interleaved-zb", 1, tensor=2), {}),
    "zbv-zero1-tied": (_layout("zbv", 1), TIED),
    "dualpipev-zero2": (_layout("dualpipev", 2), {}),
    "zb-h1-zero1": (_layout("zb-h1", 1), {}),
    "zb-h2-zero2-tied": (_layout("zb-h2", 2), TIED),
    "1f1b4-zero1": (_layout("1f1b", 1) | {"pipeline": 4}, {}),
}
CORE = ("1f1b-zero1",)
MARKED = [name if name in CORE else pytest.param(name, marks=pytest.mark.full) for name in CASES]


@pytest.mark.parametrize("name", MARKED)
def test_stages_reduce_between_their_messages_and_all_ranks_meet(name: str, dry: DryRunner) -> None:
    given, changes = CASES[name]
    layout = Layout.model_validate(given)
    more = {"overlap": {"bucket_mb": 0.05}, "global_batch": 4 * layout.pipeline, **changes}
    reports = {
        rank: dry.report(given, rank, races=not rank and name not in CORE, **more) for rank in range(layout.world_size)
    }
    assert disagreements(reports) == []
    several, found = layout.stages_per_rank > 1, 0
    for rank, report in reports.items():
        early, late = _reductions(report, layout)
        place = rank // (layout.world_size // layout.pipeline)
        assert early + late > 2
        if layout.schedule in HANDCRAFTED:
            assert early == 0  # its passes for weights come after its last message
        elif place and not several:
            assert late == 0  # it returns the last micro-batch's gradient when its own are on their way
        elif not several:
            assert early == 0  # the first stage has nothing to return
        found += early
    assert found > 0 or layout.schedule in HANDCRAFTED


def _reductions(report: DryRun, layout: Layout) -> tuple[int, int]:
    """Reductions over replicas before and after the last message of the schedule."""
    kind = "_reduce_scatter_base_" if layout.zero else "allreduce_"
    world = ",".join(map(str, range(layout.world_size)))
    norm = report.meetings[world][0].batch
    hidden = [
        message.batch for message in report.messages if message.dtype == "torch.bfloat16"
    ]  # not of tied ends: masters'
    end = max(batch for batch in hidden if batch < norm)
    everything = [one for own in report.meetings.values() for one in own]
    places = [one.batch for one in everything if kind in one.what and one.batch < norm]
    return sum(place < end for place in places), sum(place > end for place in places)
