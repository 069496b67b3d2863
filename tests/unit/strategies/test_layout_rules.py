"""Every refusal names its field and a value that works, and that value does work."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.layout import Layout, ModelFacts, Refusal, Schedule
from shardyard.strategies.layout_rules import check_layout, check_whole_samples
from shardyard.strategies.server_options import ParameterServer

NANO = ModelFacts(layers=4, heads=4, kv_heads=2, hidden=352)
SERVER = ParameterServer(servers=1)
GRID = Layout.model_validate({"tensor": {"mode": "2d", "shape": [2, 2]}})
DEEP = Layout.model_validate({"tensor": {"mode": "2.5d", "shape": [2, 2, 2]}})
CUBE = Layout.model_validate({"tensor": {"mode": "3d", "shape": [2, 2, 2]}})


def _blocks(*numbers: int, **layout: Any) -> Layout:
    return Layout.model_validate({"pipeline": {"stages": 2, "blocks": list(numbers)}, **layout})


PROFILED = Layout.model_validate({"pipeline": {"stages": 2, "split": "profile"}})


@pytest.mark.parametrize(
    ("layout", "global_batch", "field", "remedy"),
    [
        (Layout(data=3), 8, "global_batch", "for example 9"),
        (Layout(data=8), 3, "global_batch", "for example 8"),
        (Layout(data=2, micro_batch=3), 8, "layout.micro_batch", "[1, 2, 4]"),
        (Layout(pipeline=4, micro_batch=4), 8, "layout.micro_batch", "[1, 2]"),
        (Layout(pipeline=4), 2, "global_batch", "at least 4"),
        (Layout(zero=1), 8, "layout.zero", "layout.data to 2"),
        (Layout(tensor=4), 8, "layout.tensor", "[1, 2]"),
        (Layout(context=4, ulysses=3), 8, "layout.ulysses", "[1, 2, 4]"),
        (Layout(context=8, ulysses=8), 8, "layout.ulysses", "[1, 2, 4]"),
        (Layout(context=4, ulysses=4, tensor=2), 8, "layout.ulysses", "[1, 2]"),
        (Layout(context=8, ring_window=3), 8, "layout.ring_window", "Use 2, or one of [2, 4]"),
        (Layout(context=8, ulysses=2, ring_window=4), 8, "layout.ring_window", "Use 2, or one of [2]"),
        (Layout(context=2, ring_window=2), 8, "layout.ring_window", "Leave layout.ring_window out."),
        (
            Layout(context=4, context_method="all-gather", ring_window=2),
            8,
            "layout.ring_window",
            "context_method to ring",
        ),
        (Layout(context=3), 8, "layout.context", "for example 132; context degrees that work with ulysses 1: [1, 2]"),
        (Layout(context=12, ulysses=2), 8, "layout.context", "[2, 4, 8]"),
        (Layout(pipeline=8), 16, "layout.pipeline", "at most 4"),
        (Layout(pipeline=4, schedule="zbv"), 16, "layout.pipeline", "at most 2"),
        (Layout(pipeline=2, schedule="dualpipev", micro_batch=4), 12, "layout.micro_batch", "[1, 2, 3]"),
        (Layout(pipeline=2, schedule="dualpipev"), 3, "global_batch", "at least 4"),
        (Layout(pipeline=4, schedule="zb-h1"), 3, "global_batch", "at least 4"),
        (Layout(pipeline=4, schedule="zb-h2"), 6, "global_batch", "at least 7"),
        (Layout(pipeline=4, schedule="zb-h2", micro_batch=4), 16, "layout.micro_batch", "[1, 2]"),
        (Layout(pipeline=2, schedule="interleaved-zb", micro_batch=1), 5, "global_batch", "a multiple"),
        (Layout(pipeline=4, micro_batch=3), 3, "global_batch", "at least 12"),
        (Layout(pipeline=2, schedule="interleaved", virtual=4), 16, "layout.pipeline", "at most 1"),
        (Layout(parameter_server=SERVER, tensor=2), 8, "layout.tensor", "layout.tensor to 1"),
        (Layout(parameter_server=SERVER, pipeline=2), 8, "layout.pipeline", "layout.pipeline to 1"),
        (Layout(parameter_server=SERVER, context=2), 8, "layout.context", "layout.context to 1"),
        (Layout(parameter_server=SERVER, data=2, expert=2), 8, "layout.expert", "layout.expert to 1"),
        (Layout(parameter_server=SERVER, data=2, zero=2), 8, "layout.zero", "layout.zero to 0"),
        (Layout(parameter_server=SERVER, data=3), 8, "global_batch", "for example 9"),
        (GRID.with_(micro_batch=1), 8, "layout.micro_batch", "[2, 4, 8]"),
        (GRID.with_(data=8), 8, "global_batch", "for example 16"),
        (GRID.with_(tensor=9, tensor_shape={"mode": "2d", "shape": [3, 3]}), 9, "layout.tensor", "[[2, 2]]"),
        (DEEP.with_(micro_batch=2), 8, "layout.micro_batch", "[4, 8]"),
        (
            DEEP.with_(tensor=27, tensor_shape={"mode": "2.5d", "shape": [3, 3, 3]}),
            9,
            "layout.tensor",
            "[[2, 2, 2]]",
        ),
        (CUBE.with_(micro_batch=2), 8, "layout.micro_batch", "[4, 8]"),
        (CUBE.with_(tensor=27, tensor_shape={"mode": "3d", "shape": [3, 3, 3]}), 9, "layout.tensor", "[[2, 2, 2]]"),
        (CUBE.with_(micro_batch=1), 2, "global_batch", "leave layout.micro_batch out, or use a multiple of 4"),
        (CUBE.with_(context=2), 8, "layout.context", "layout.context to 1"),
        (GRID.with_(context=2), 8, "layout.context", "layout.context to 1"),
        (GRID.with_(data=2, zero=3), 8, "layout.zero", "layout.zero to 2"),
        (GRID.with_(pipeline=2, micro_batch=4), 4, "layout.micro_batch", "[2]"),
        (GRID.with_(pipeline=2), 2, "global_batch", "at least 4"),
        (GRID.with_(pipeline=2), 3, "global_batch", "a multiple of 2, for example 4"),
        (GRID.with_(pipeline=2, data=2), 2, "global_batch", "a multiple of 4, for example 8"),
        (Layout(pipeline=2, vertical_sync=True), 8, "layout.vertical_sync", "layout.schedule to pipedream"),
        (Layout(pipeline=2, schedule="2bw", vertical_sync=True), 8, "layout.vertical_sync", "vertical_sync out"),
        (_blocks(1, 3, schedule="zbv"), 8, "layout.pipeline", "Give 4 numbers"),
        (_blocks(2, 3), 8, "layout.pipeline", "whose sum is 4"),
        (_blocks(1, 0, 2, 1, schedule="zbv"), 8, "layout.pipeline", "Only the first and the last"),
    ],
)
def test_refusals_name_field_and_remedy(layout: Layout, global_batch: int, field: str, remedy: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_layout(layout, NANO, global_batch, seq_len=128)
    assert caught.value.field == field
    assert remedy in caught.value.remedy


def test_a_profile_goes_with_every_axis_and_without_experts() -> None:
    layout = PROFILED.with_(data=2, zero=3)
    assert check_layout(layout, NANO, 8, seq_len=128)
    assert check_layout(PROFILED.with_(tensor=2, context=2), NANO, 8, seq_len=128)
    assert check_layout(PROFILED.with_(tensor=4, tensor_shape={"mode": "2d", "shape": [2, 2]}), NANO, 8, seq_len=128)
    mixture = ModelFacts(layers=4, heads=4, kv_heads=2, hidden=352, experts=4)
    with pytest.raises(Refusal, match="router's choices") as caught:
        check_layout(layout, mixture, 8, seq_len=128)
    assert caught.value.field == "layout.pipeline"
    assert check_layout(layout.with_(pipeline_split="flops"), mixture, 8, seq_len=128)


@pytest.mark.parametrize("axis", ["tensor", "context", "expert"])
def test_whole_samples_are_not_cut(axis: str) -> None:
    check_whole_samples(Layout(data=4, zero=3))
    check_whole_samples(Layout(data=2, pipeline=2))
    with pytest.raises(Refusal, match="whole ones") as caught:
        check_whole_samples(Layout.model_validate({"data": 2, axis: 2}))
    assert caught.value.field == f"layout.{axis}"
    with pytest.raises(Refusal, match="parameter_server"):
        check_whole_samples(Layout(data=2, parameter_server=SERVER))


@pytest.mark.parametrize("schedule", ["interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"])
def test_backward_passes_of_own_samples_are_whole(schedule: Schedule) -> None:
    with pytest.raises(Refusal, match=f"{schedule} splits the backward pass") as caught:
        check_whole_samples(Layout(pipeline=2, schedule=schedule))
    assert caught.value.field == "layout.schedule" and "1f1b" in caught.value.remedy
    check_whole_samples(Layout(schedule=schedule))


def test_a_profile_has_token_ids_and_own_samples_have_none() -> None:
    with pytest.raises(Refusal, match="times modules one by one with token ids") as caught:
        check_whole_samples(PROFILED)
    assert caught.value.field == "layout.pipeline" and "split: profile" in caught.value.remedy


def test_ulysses_copies_key_heads_where_there_are_too_few() -> None:
    assert check_layout(Layout(context=4, ulysses=4), NANO, 8, seq_len=128)
    assert check_layout(Layout(context=2, ulysses=2, tensor=2), NANO, 8, seq_len=128)


def test_parameter_servers_refuse_experts_which_have_biases_of_their_own() -> None:
    layout, mixture = Layout(data=2, parameter_server=SERVER), ModelFacts(4, 4, 2, 352, experts=8)
    assert check_layout(layout, NANO, 8, seq_len=128).data == 2
    with pytest.raises(Refusal, match="without experts") as caught:
        check_layout(layout, mixture, 8, seq_len=128)
    assert caught.value.field == "layout.parameter_server"


def test_a_grid_has_no_experts_and_no_lower_bound_on_positions() -> None:
    with pytest.raises(Refusal, match=r"layout.tensor: a grid has no experts"):
        check_layout(GRID, ModelFacts(4, 4, 2, 352, experts=4), 8, seq_len=128)
    assert check_layout(GRID, NANO, 8, seq_len=7).micro_batch == 8


def test_grids_are_replicas_over_which_zero_shards() -> None:
    assert check_layout(DEEP.with_(zero=1), NANO, 8, seq_len=128).micro_batch == 8
    with pytest.raises(Refusal, match=r"layout.zero: ZeRO-1 shards over the data and context axes"):
        check_layout(GRID.with_(zero=1), NANO, 8, seq_len=128)


def test_sequence_parallelism_cuts_what_the_context_axis_leaves() -> None:
    wide = ModelFacts(layers=2, heads=16, kv_heads=16, hidden=16)
    assert check_layout(Layout(context=2, tensor=8), wide, 8, seq_len=16)
    with pytest.raises(
        Refusal, match=r"8 \(sequence length of a context rank\) is not divisible by 16.*\[1, 2, 4, 8\]"
    ):
        check_layout(Layout(context=2, tensor=16), wide, 8, seq_len=16)
    assert check_layout(Layout(context=2, tensor=16, sequence=False), wide, 8, seq_len=16)


@given(context=st.integers(1, 12), ulysses=st.integers(1, 12), tensor=st.integers(1, 3), seq_len=st.integers(2, 96))
def test_what_context_passes_can_be_cut_and_what_it_refuses_has_a_remedy_that_works(
    context: int, ulysses: int, tensor: int, seq_len: int
) -> None:
    facts = ModelFacts(layers=2, heads=12, kv_heads=6, hidden=24)
    layout = Layout(context=context, ulysses=ulysses, tensor=tensor, sequence=False)
    try:
        check_layout(layout, facts, 8, seq_len)
    except Refusal as refusal:
        named = re.search(r"for example (\d+)", refusal.remedy)
        if named:
            assert check_layout(layout, facts, 8, int(named.group(1)))
        choices = re.search(r"\[([\d, ]+)\]", refusal.remedy)
        if choices and refusal.field == "layout.context":
            for degree in choices.group(1).split(", "):
                assert check_layout(layout.with_(context=int(degree)), facts, 8, seq_len)
        return
    assert context % ulysses == 0 and seq_len % context == 0
    assert layout.ring == 1 or seq_len % (2 * layout.ring) == 0


@pytest.mark.parametrize("mode", ["2d", "2.5d", "3d"])
@pytest.mark.parametrize("heads", [4, 8, 64, 1024])
def test_every_grid_that_a_refusal_names_divides_the_model(mode: str, heads: int) -> None:
    facts = ModelFacts(layers=4, heads=heads, kv_heads=heads, hidden=heads * 4)
    shape = {"mode": mode, "shape": [3, 3, 3][: 2 + (mode != "2d")]}
    with pytest.raises(Refusal) as caught:
        check_layout(Layout.model_validate({"tensor": shape}), facts, 9, seq_len=128)
    named = json.loads(caught.value.remedy.removeprefix("Grids that divide this model: ").partition(";")[0])
    assert named
    for numbers in named:
        layout = Layout.model_validate({"tensor": {"mode": mode, "shape": numbers}})
        assert check_layout(layout, facts, layout.division.rows, seq_len=128).microbatches == 1


def test_a_model_that_no_grid_divides_takes_a_number() -> None:
    with pytest.raises(Refusal, match="No grid divides this model: set"):
        check_layout(GRID, ModelFacts(layers=4, heads=5, kv_heads=1, hidden=352), 8, seq_len=128)
