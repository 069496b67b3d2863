import re

import pytest
from harness.layouts import GRID
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shardyard.strategies.batch import Batch
from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.server_options import ParameterServer


def test_world_size_is_the_product_of_the_degrees() -> None:
    layout = Layout(data=2, tensor=3, pipeline=4)
    assert layout.world_size == 24
    assert layout.degrees == {"pipeline": 4, "data": 2, "context": 1, "tensor": 3}
    assert Layout(data=2, context=4, ulysses=2).world_size == 8
    assert Layout(context=4, ulysses=2).ring == 2


LAYOUTS = [
    {"data": 2, "tensor": 2, "pipeline": 2},
    {"data": 2, "context": 2, "ulysses": 2, "tensor": 2},
    {"data": 4, "expert": 2, "pipeline": 2, "zero": 3, "shard": 2},
    {"data": 2, "context": 2, "expert": 4, "pipeline": 2},
]


@pytest.mark.parametrize("degrees", LAYOUTS, ids=str)
def test_a_ranks_place_and_part_are_those_of_the_mesh(degrees: dict[str, int]) -> None:
    """The mesh of each of the ranks, on process groups that send nothing."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from shardyard.strategies.mesh import make_mesh

    layout = Layout.model_validate(degrees)
    for rank in range(layout.world_size):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=layout.world_size)
        try:
            mesh = make_mesh(layout, torch.device("cpu"))
            assert layout.part(rank) == mesh.part
            assert layout.place(rank) == {axis: mesh.index(axis) if axis in mesh.axes else 0 for axis in layout.degrees}
        finally:
            dist.destroy_process_group()


def test_reads_as_text() -> None:
    assert str(Layout()) == "data 1"
    assert str(Layout(data=2, zero=1, tensor=2, pipeline=2)) == "data 2 (ZeRO-1) × tensor 2 × pipeline 2 (1f1b)"
    assert str(Layout(context=4, ulysses=2, tensor=2)) == "context 4 (ring 2 × Ulysses 2) × tensor 2"
    inside = Layout(context=16, ulysses=2, context_inner="ring", ring_window=4)
    assert str(inside) == "context 16 (Ulysses 2 × ring 8 in windows of 4)"
    assert str(Layout(context=2, context_method="all-gather")) == "context 2 (all-gather 2)"
    assert str(Layout(context=2, zero=1)) == "data 1 (ZeRO-1) × context 2 (ring 2)"
    assert str(Layout(data=4, parameter_server=ParameterServer(servers=1))) == "data 4, 1 parameter server"
    assert str(Layout(parameter_server=ParameterServer(servers=2))) == "data 1, 2 parameter servers"


@pytest.mark.parametrize(
    ("layout", "global_batch", "expected"),
    [
        (Layout(), 8, Batch(8, 1, 1, 8)),
        (Layout(data=4), 8, Batch(8, 4, 1, 2)),
        (Layout(data=2, micro_batch=1), 8, Batch(8, 2, 4, 1)),
        (Layout(pipeline=2), 16, Batch(16, 1, 4, 4)),
        (Layout(pipeline=4), 4, Batch(4, 1, 4, 1)),
        (Layout(pipeline=2, schedule="gpipe"), 6, Batch(6, 1, 6, 1)),
        (Layout(pipeline=4, schedule="gpipe"), 7, Batch(7, 1, 7, 1)),
        (Layout(pipeline=4, schedule="gpipe"), 2, Batch(2, 1, 2, 1)),
        (Layout(data=3, pipeline=4, schedule="gpipe"), 12, Batch(12, 3, 4, 1)),
        (Layout.model_validate({"pipeline": 4, "schedule": "gpipe", "tensor": GRID}), 12, Batch(12, 1, 6, 2)),
        (Layout(pipeline=4, schedule="pipedream"), 3, Batch(3, 1, 1, 3)),
    ],
)
def test_batch_maths(layout: Layout, global_batch: int, expected: Batch) -> None:
    assert layout.batch(global_batch) == expected


@pytest.mark.parametrize("given", [False, True, 1.0])
@pytest.mark.parametrize("strict", [False, True])
def test_a_zero_stage_that_only_equals_a_number_is_refused(given: object, strict: bool) -> None:
    with pytest.raises(ValidationError) as refusal:
        Layout.model_validate({"data": 2, "zero": given}, strict=strict)
    assert [(error["loc"], error["type"]) for error in refusal.value.errors()] == [(("zero",), "int_type")]


@given(
    data=st.integers(1, 8),
    pipeline=st.integers(1, 4),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"]),
    batch=st.integers(1, 64),
)
def test_a_batch_is_a_product_or_a_refusal_whose_remedy_works(
    data: int, pipeline: int, schedule: str, batch: int
) -> None:
    layout = Layout.model_validate({"data": data, "pipeline": pipeline, "schedule": schedule})
    try:
        maths = layout.batch(batch)
    except Refusal as refusal:
        named = re.search(r"for example (\d+)", refusal.remedy)
        if named:
            share = int(named.group(1)) // data
            assert int(named.group(1)) % data == 0 and share >= 1
        return
    assert maths.data * maths.microbatches * maths.micro_batch == batch
