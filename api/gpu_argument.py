"""A GPU model that an option or a parameter names."""

from ..workers.gpu_models import GPU_MODELS, GpuModel, gpu_named
from .errors import InvalidParameter


def gpu_model(name: str, field: str) -> GpuModel:
    """The model of this name. Raises InvalidParameter."""
    model = gpu_named(name)
    if model is None:
        known = ", ".join(one.name for one in GPU_MODELS)
        message = f"{name[:100]!r} is not a GPU model that is known."
        raise InvalidParameter(message, field=field, remedy=f"Use one of: {known}")
    return model
