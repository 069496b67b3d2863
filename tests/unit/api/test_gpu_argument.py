"""GPU models by name; what is not known is refused with those that are."""

import pytest

from shardyard.api.errors import InvalidParameter
from shardyard.api.gpu_argument import gpu_model
from shardyard.workers.gpu_models import GPU_MODELS, GpuModel


@pytest.mark.parametrize("model", GPU_MODELS, ids=lambda model: model.name)
def test_a_model_has_its_name_in_any_case(model: GpuModel) -> None:
    assert gpu_model(model.name.lower(), "--gpu") is model


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidParameter) as refused:
        gpu_model("H1" * 100, "gpu")
    assert refused.value.field == "gpu" and len(refused.value.message) < 200
    assert refused.value.remedy is not None and "H100 PCIe" in refused.value.remedy
