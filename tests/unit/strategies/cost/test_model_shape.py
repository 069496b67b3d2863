"""Shapes of a model from its numbers alone."""

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.model_shape import Weight
from shardyard.strategies.layout import Layout
from shardyard.workers.cost_inputs import setting_of, vocabulary
from shardyard.workers.spec import TrainSpec


def test_the_shapes_sum_up_to_the_models_parameters() -> None:
    for model in ({"preset": "8B"}, {"family": "gpt2", "preset": "124M"}, {"preset": "nano", "tied": True}):
        spec = TrainSpec.model_validate({"steps": 1, "global_batch": 1, "model": model})
        found = setting_of(spec, 256, "cpu")
        assert isinstance(found, Setting)
        arch = spec.architecture(256)
        assert arch is not None
        assert sum(weight.elements for weight in found.decoder.held(found.layout, 0)) == arch.parameters
        assert vocabulary(spec, arch.parameters) == 256
        assert vocabulary(spec, arch.parameters + 1) is None


def test_zero_1_divides_experts_and_zero_3_their_rows_where_they_are_few() -> None:
    """Two experts of a rank on three replicas, of six rows each: one replica has none of their state under ZeRO-1."""
    experts = Weight(6, 5, 0, spread=4, stack=2)
    assert experts.elements == 60
    whole = experts.of(Layout(data=12, zero=1, expert=4))
    assert (whole.chunk(12), whole.last_chunk(12), whole.padded(12)) == (30, 0, 90)
    rows = experts.of(Layout(data=12, zero=3, expert=4))
    assert (rows.chunk(12), rows.last_chunk(12), rows.padded(12)) == (20, 20, 60)
    assert [rows.chunk_of(12, rank) for rank in (0, 3, 4, 11)] == [20, 20, 20, 20]
    assert [whole.chunk_of(12, rank) for rank in (0, 3, 4, 11)] == [30, 30, 30, 0]
    sharded = experts.of(Layout(data=12, zero=1, expert=4, tensor=2))
    assert (sharded.elements, sharded.chunk(12)) == (30, 15)


def test_replicas_of_an_expert_share_its_snapshots_however_zero_divides_it() -> None:
    experts = Weight(6, 5, 0, spread=4, stack=2)
    for parts in (1, 2, 4, 8):  # each expert is on two of eight replicas
        assert experts.kept(parts, 8) == experts.elements / 2
    assert experts.kept(1, 1) == experts.elements


def test_zero_3_divides_columns_of_few_rows_that_no_tensor_rank_shares() -> None:
    """Keys of one head of 64, and a width of 1,024."""
    keys = Weight(64, 1024, 0)
    assert keys.of(Layout(data=128, zero=3)).chunk(128) == 64 * 8
    assert keys.of(Layout(data=128, zero=1)).chunk(128) == 1024
    assert keys.of(Layout(data=128, zero=3, tensor=2)).chunk(128) == 1024
    assert keys.of(Layout(data=64, zero=3)).chunk(64) == 1024
    assert keys.of(Layout(data=96, zero=3)).chunk(96) == 1024  # 96 does not divide the width
