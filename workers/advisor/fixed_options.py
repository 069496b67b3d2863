"""What a spec with `layout: auto` decides itself: only candidates that have it are searched. Imports no torch.

Any other spec decides nothing: the advisor replaces its layout, recompute and offload. Tensor groups of a layout that is chosen for a
submission are within nodes, because a submission is refused otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...strategies.advisor.candidates import Shape
from ...strategies.layout import DELAYED, Layout, Refusal
from ...strategies.memory_options import Offload, Recompute
from ..spec import TrainSpec

#: Options of a layout that all candidates have from the spec.
KEPT: Final = ("sequence", "context_method", "context_inner")
#: Fields in which the candidates of a shape differ.
_OF_ZERO: Final = ("zero", "shard")
#: Fields in which shapes differ.
_OF_SHAPES: Final = ("data", "tensor", "context", "ulysses", "pipeline", "schedule", "virtual", "expert", "micro_batch")
#: Field → the one in which a spec says it.
_WRITTEN: Final = {
    "elastic": "data",
    "tensor_shape": "tensor",
    "pipeline_split": "pipeline",
    "pipeline_blocks": "pipeline",
}


@dataclass(frozen=True)
class Fixed:
    """`layout`: fields of the layout and their values. `recompute` and `offload` None: the advisor chooses them.

    `most_tensor`: the largest tensor degree, and `tensors`: the degrees for whose groups the nodes have room; None: any.
    """

    layout: Mapping[str, object] = field(default_factory=dict)
    recompute: Recompute | None = None
    offload: Offload | None = None
    most_tensor: int | None = None
    tensors: tuple[int, ...] | None = None

    def takes(self, shape: Shape) -> bool:
        """Whether a candidate may have this shape."""
        if self.recompute is not None and shape.recompute != self.recompute.mode:
            return False
        tensor = shape.degrees.tensor
        if (self.most_tensor or tensor) < tensor or tensor not in (self.tensors or (tensor,)):
            return False
        if not self.layout:
            return True
        layout = shape.layout
        return all(getattr(layout, name) == value for name, value in self.layout.items() if name not in _OF_ZERO)

    def takes_zero(self, fields: Mapping[str, int]) -> bool:
        """Whether a candidate may have this ZeRO stage and these groups. `fields`: one of `zero_choices`."""
        return all(fields.get(name) == self.layout[name] for name in _OF_ZERO if name in self.layout)

    def __str__(self) -> str:
        """Such as `tensor 2, zero 3, recompute full`; empty if the advisor chooses everything."""
        words = [f"{name} {value}" for name, value in self.layout.items()]
        words += [f"recompute {self.recompute.mode}"] if self.recompute else []
        return ", ".join(words + (["offload as given"] if self.offload else []))


def fixed_by(train: TrainSpec, ranks_per_node: int, tensors: tuple[int, ...] | None = None) -> Fixed:
    """What `train` decides itself. Raises `Refusal` for an option with which no candidate is searched."""
    if not train.undecided:
        return Fixed()
    given = {name: getattr(train.layout, name) for name in Layout.model_fields if name in train.layout.model_fields_set}
    for name, value in given.items():
        _refuse_unsearched(name, value)
    chosen: dict[str, object] = {name: given[name] for name in (*_OF_SHAPES, *_OF_ZERO) if name in given}
    if chosen.get("micro_batch", 0) is None:
        del chosen["micro_batch"]
    offload = train.offload if "offload" in train.model_fields_set else None
    if offload is not None and offload.parameters:
        raise _unsearched("offload.parameters")
    recompute = train.recompute if "recompute" in train.model_fields_set else None
    return Fixed(chosen, recompute, offload, ranks_per_node, tensors)


def _refuse_unsearched(name: str, value: object) -> None:
    # Of GPipe only those candidates are searched that 1F1B cannot run.
    searched = name in ("auto", *KEPT, *_OF_SHAPES, *_OF_ZERO) and value not in ("gpipe", *DELAYED)
    if not searched and value != Layout.model_fields[name].default:
        raise _unsearched(f"layout.{_WRITTEN.get(name, name)}")


def _unsearched(name: str) -> Refusal:
    message = "the layout advisor does not search layouts with this option."
    return Refusal(name, message, f"Leave {name} out, or write a whole layout in the place of auto.")
