"""Shapes of a model from its numbers alone."""

from shardyard.strategies.cost.estimate import Setting
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
