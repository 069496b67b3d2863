"""Errors of a stage's pass: as the stage raised them, and that of one which passes on other shapes than before."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ..layout import Refusal
from .stage_shapes import Hidden, described

T = TypeVar("T")

#: What torch's pipelines write into the RuntimeError that they raise from any error of a pass, beside the shapes of all arguments.
_WRAPPER = "failed to run"


def unwrapped(run: Callable[[], T]) -> T:
    """The result of a pass, or the error that the stage itself raised, with its class, message and `facts`."""
    try:
        return run()
    except RuntimeError as error:
        raised: BaseException = error
    own = raised.__cause__
    raise own if own is not None and _WRAPPER in str(raised).lower() else raised


def check_passed_on(stage: int, tensors: Sequence[torch.Tensor], known: Sequence[Hidden]) -> None:
    """Raises Refusal if `stage` passes on other shapes or dtypes than are `known`: the next stage has room for those alone."""
    found = described(tensors)
    if found != tuple(known):
        raise Refusal(
            "data.source",
            f"stage {stage} passes on {_words(found)}, and passed on {_words(known)} before: the next stage cannot take it.",
            "Let all micro-batches have the same shapes: pad or cut them in the data source or in the module.",
        )


def _words(tensors: Sequence[Hidden]) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype in tensors) or "nothing"
