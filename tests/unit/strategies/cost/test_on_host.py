"""What is planned in host memory: beside GPUs that of the rank which has most there, and a bound of it for searches."""

from dataclasses import replace
from typing import Any

import pytest

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.on_host import host_bytes, least_on_host
from shardyard.strategies.cost.plan import Plan, plan
from shardyard.strategies.cost.rank_parameters import rank_at
from shardyard.strategies.cost.stage_balance import stage_blocks

from .test_estimate import setting


def of(layout: dict[str, Any], **train: Any) -> Setting:
    found = setting(layout, **{"precision": "bf16", "model": {"preset": "nano", "layers": 8}, **train})
    assert isinstance(found, Setting)
    return replace(found, device="cuda")


def places(asked: Setting) -> list[dict[str, int]]:
    """What each rank of a pipeline has in host memory."""
    blocks = [len(part) for part in stage_blocks(asked.layout, asked.decoder.costs)]
    return [host_bytes(rank_at(asked, place, blocks)) for place in range(asked.layout.pipeline)]


def test_beside_gpus_the_rank_counts_that_has_most_there() -> None:
    """The last rank has the logits and so most on its device; those before it have the activations of several passes on their hosts."""
    model = {"preset": "nano", "layers": 8, "vocab": 60_000, "tied": False}
    asked = of({"pipeline": 4, "micro_batch": 1}, model=model, global_batch=8, offload={"activations": True})
    held = [one["activations"] for one in places(asked)]
    on_gpus, on_cpus = plan(asked), plan(replace(asked, device="cpu"))
    assert max(held) > held[-1] and "logits" in on_gpus.by_kind
    assert on_gpus.host["activations"] == max(held) and on_cpus.host["activations"] == held[-1]


def test_snapshots_are_not_among_what_a_run_needs() -> None:
    found = Plan({}, "loss", {"optimizer": 3, "activations": 4, "snapshots": 5})
    assert found.offloaded == {"optimizer": 3, "activations": 4}


@pytest.mark.parametrize("offload", [{"optimizer": 1}, {"optimizer": 0.5, "activations": True}, {"activations": True}])
@pytest.mark.parametrize(
    "layout",
    [
        {"data": 2},
        {"data": 4, "zero": 1},
        {"data": 2, "pipeline": 4, "micro_batch": 1},
        {"pipeline": 2, "schedule": "zbv", "micro_batch": 1},
        {"pipeline": 2, "schedule": "interleaved", "micro_batch": 1},
    ],
    ids=str,
)
def test_the_bound_is_no_more_than_the_plan(layout: dict[str, Any], offload: dict[str, Any]) -> None:
    asked = of(layout, offload=offload, global_batch=16)
    assert 0 < least_on_host(asked) <= sum(plan(asked).offloaded.values())


@pytest.mark.parametrize("to", ["host", "disk"])
def test_parameters_count_with_the_optimizer(to: str) -> None:
    asked = of({"data": 2, "zero": 3}, offload={"parameters": True, "to": to})
    assert least_on_host(asked) == sum(plan(asked).offloaded.values()) > 0
