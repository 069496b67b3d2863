"""How the blocks of a model are split over a pipeline. Imports no torch.

`pipeline: {stages: 4, split: profile}` becomes `pipeline: 4` with the split beside it, and so does `{stages: 4, blocks: [2, 3, 3, 2]}`.
Code that asks for the number of ranks sees a number.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from .number_list import FromList
from .number_object import NumberObject, number_or

#: `flops`: by the operations that the model's sizes say. `profile`: by times measured on the devices before the first step.
StageSplit = Literal["flops", "profile"]

#: Number of blocks of every stage, in the order of the stages.
StageBlocks = Annotated[tuple[Annotated[int, Field(ge=0, le=1024)], ...], FromList]


class PipelineShape(NumberObject):
    """The ranks of a pipeline, and by what the blocks are split over them. It stands for the number of ranks."""

    stages: int = Field(ge=1, le=1024, description="Ranks of the pipeline. Each has as many replicas as any other.")
    split: StageSplit = Field(
        "flops",
        description="`profile`: PipeDream's partition by measured times of every module (1806.03377, section 3.1).",
    )
    blocks: StageBlocks | None = Field(
        None,
        description="Number of blocks of every stage, in order, such as [2, 3, 3, 2]; an end may have 0. With several stages per rank one "
        "number for each of them. null: `split` decides.",
    )

    @model_validator(mode="before")
    @classmethod
    def _equal_replicas(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "replicas" in given:
            raise ValueError(
                "all stages have the same number of replicas, which is layout.data: leave replicas out and set that; with "
                "split: profile the plan says what other numbers would gain"
            )
        return given

    @model_validator(mode="after")
    def _one_decides(self) -> "PipelineShape":
        if self.blocks is not None and self.split == "profile":
            raise ValueError("blocks say already what every stage has: leave split out, or blocks")
        return self

    @property
    def number(self) -> int:
        return self.stages

    @property
    def beside(self) -> dict[str, Any]:
        return {"pipeline_split": self.split, "pipeline_blocks": self.blocks}


_BLOCKS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1024}, "minItems": 2}
#: The JSON Schema of a number of stages that may be a shape.
stages_or_shape: Final = number_or(
    {"stages": None, "split": {"type": "string", "enum": ["flops", "profile"]}, "blocks": _BLOCKS}, ("stages",)
)
