"""Candidates: every legal layout is among them, and those that cannot be are counted with their reason."""

from shardyard.strategies.advisor.candidates import axes_of, shapes, simplicity, zero_choices
from shardyard.strategies.layout import Layout, ModelFacts

FACTS = ModelFacts(layers=6, heads=4, kv_heads=2, hidden=352)


def test_an_axis_has_the_degrees_that_the_rules_allow() -> None:
    axes = axes_of(Layout(), FACTS, 4, 64, 8)
    assert axes.data == (1, 2, 4)
    assert axes.tensor == (1, 2)
    assert axes.pipeline == (1, 2, 4)
    assert axes.context == ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 4))
    refused = {field: (message, count) for field, message, count in axes.refused}
    assert refused["layout.tensor"] == ("2 (key/value heads) is not divisible by 4.", 2)
    assert refused["global_batch"] == ("4 sequences do not divide over 8 data ranks.", 1)
    assert refused["layout.pipeline"][1] == 1 and refused["layout.ulysses"][1] == 1


def test_shapes_have_all_ranks_and_divide_the_batch() -> None:
    axes = axes_of(Layout(), FACTS, 8, 64, 8)
    found = list(shapes(Layout(), axes, FACTS, 8, 8))
    assert len(set(found)) == len(found) > 300
    for shape in found:
        batch = shape.layout.batch(8)
        assert shape.layout.world_size == 8 and batch.microbatches == shape.microbatches
    assert {shape.layout.schedule for shape in found} >= {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zbv"}
    assert {shape.recompute for shape in found} == {"none", "selective", "full"}
    assert {shape.layout.zero for shape in found} == {0}


def test_a_degree_that_does_not_divide_the_batch_is_left_out() -> None:
    axes = axes_of(Layout(), FACTS, 6, 64, 4)
    assert {shape.layout.data for shape in shapes(Layout(), axes, FACTS, 6, 4)} == {1, 2}


def test_gpipe_is_for_fewer_micro_batches_than_ranks() -> None:
    axes = axes_of(Layout(), FACTS, 8, 64, 4)
    gpipe = [shape for shape in shapes(Layout(), axes, FACTS, 8, 4) if shape.layout.schedule == "gpipe"]
    assert gpipe and all(shape.microbatches < shape.layout.pipeline for shape in gpipe)


def test_zero_has_every_stage_and_every_size_of_groups() -> None:
    assert zero_choices(1) == ({"zero": 0},)
    assert zero_choices(8) == (
        *({"zero": stage} for stage in range(4)),
        {"zero": 3, "shard": 2},
        {"zero": 3, "shard": 4},
    )


def test_fewer_options_are_simpler() -> None:
    plain, sharded = Layout(data=4), Layout(data=4, zero=1)
    assert simplicity(plain, "none") < simplicity(sharded, "none") < simplicity(Layout(data=2, pipeline=2), "none")
    assert simplicity(plain, "none") < simplicity(plain, "full")


def test_experts_are_spread_over_replicas_that_are_there() -> None:
    facts = ModelFacts(layers=6, heads=4, kv_heads=2, hidden=352, experts=8)
    found = {
        (shape.layout.data * shape.layout.context, shape.expert)
        for shape in shapes(Layout(), axes_of(Layout(), facts, 8, 64, 4), facts, 8, 4)
    }
    assert found == {(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)}
