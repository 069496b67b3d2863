"""How the blocks of a model are split over a pipeline. Imports no torch.

`pipeline: {stages: 4, split: profile}` becomes `pipeline: 4` with the split beside it, and so does `{stages: 4, blocks: [2, 3, 3, 2]}`.
Code that asks for the number of ranks sees a number.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from .number_list import FromList

#: `flops`: by the operations that the model's sizes say. `profile`: by times measured on the devices before the first step.
StageSplit = Literal["flops", "profile"]


#: Number of blocks of every stage, in the order of the stages.
StageBlocks = Annotated[tuple[Annotated[int, Field(ge=0, le=1024)], ...], FromList]


class PipelineShape(BaseModel):
    """The ranks of a pipeline, and by what the blocks are split over them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
                "all stages have the same number of replicas, which is layout.data: leave replicas out and set that"
            )
        return given

    @model_validator(mode="after")
    def _one_decides(self) -> "PipelineShape":
        if self.blocks is not None and self.split == "profile":
            raise ValueError("blocks say already what every stage has: leave split out, or blocks")
        return self


def split_beside_the_degree(given: Any) -> Any:
    """Replace a shape in `given["pipeline"]` by its number of stages, and put the split beside it: `pipeline_split`, `pipeline_blocks`.

    Anything else is unchanged. A validation error of the shape names `pipeline`, which was written.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("pipeline"), Mapping):
        return given
    read = TypeAdapter(dict[str, PipelineShape])
    found = read.validate_python({"pipeline": given["pipeline"]}, strict=True)["pipeline"]
    return {**given, "pipeline": found.stages, "pipeline_split": found.split, "pipeline_blocks": found.blocks}


def degree_or_split(schema: dict[str, Any]) -> None:
    """Change the JSON Schema of a degree in place so that it is a number or a shape."""
    number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
    blocks = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1024}, "minItems": 2}
    split = {"type": "string", "enum": ["flops", "profile"]}
    properties = {"stages": dict(number), "split": split, "blocks": blocks}
    a_shape = {
        "type": "object",
        "required": ["stages"],
        "additionalProperties": False,
        "properties": properties,
    }
    schema["anyOf"] = [number, a_shape]
