from typing import Any

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.elastic_layouts import elastic_layouts
from shardyard.workers.spec import TrainSpec


def train(least: int, most: int, global_batch: int, **layout: Any) -> TrainSpec:
    layout |= {"data": {"min": least, "max": most}}
    return TrainSpec.model_validate({"steps": 1, "global_batch": global_batch, "layout": layout})


def degrees(spec: TrainSpec) -> list[int]:
    return [form.data for form in elastic_layouts(spec, spec.facts())]


def test_every_degree_that_fits_the_batch_is_a_form_the_largest_first() -> None:
    spec = train(1, 12, 12, tensor=2)
    assert degrees(spec) == [12, 6, 4, 3, 2, 1]
    largest = elastic_layouts(spec, spec.facts())[0]
    assert (largest.world_size, largest.layout) == (24, "data 12 × tensor 2")
    assert largest.batch == "global batch 12 = 12 data × 1 micro-batches × 1 sequences"


@pytest.mark.parametrize("mode", [{}, {"mode": "stale", "bound": 2}, {"mode": "async"}])
def test_the_number_of_parameter_servers_stays(mode: dict[str, Any]) -> None:
    spec = train(1, 4, 8, parameter_server={"servers": 2, **mode})
    layouts = [(one.data, one.world_size) for one in elastic_layouts(spec, spec.facts())]
    assert layouts == [(4, 6), (2, 4), (1, 3)]


def test_what_other_parts_of_the_layout_forbid_is_passed_over() -> None:
    assert degrees(train(1, 4, 8, zero=1)) == [4, 2], "ZeRO needs two replicas"
    assert degrees(train(2, 8, 8, zero=3, shard=2)) == [8, 4], "HSDP needs two groups"
    assert degrees(train(1, 4, 8, micro_batch=4)) == [2, 1], "a share holds whole micro-batches"
    assert degrees(train(1, 4, 8, pipeline=2)) == [4, 2, 1]


def test_one_degree_is_no_choice() -> None:
    assert degrees(train(4, 4, 8)) == []
    with pytest.raises(Refusal) as refused:
        degrees(train(3, 4, 16))
    assert refused.value.field == "layout.data"
    assert refused.value.message.startswith("of 3 to 4 replicas only 4 can run")
    assert refused.value.remedy.startswith("Use 2 or less as min.")


def test_a_batch_that_the_most_replicas_cannot_share_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        train(1, 4, 6).check()
    assert refused.value.field == "global_batch"
