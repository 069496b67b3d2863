"""What a user submits: `JobSpec`, whose `train` part is the workers' `TrainSpec`, or `CommandSpec`, which runs a program of the user's own.

The keys of a document decide which of them it is. Imports no torch and no Ray.
"""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from ..strategies.layout import Refusal
from ..workers.spec import TrainSpec
from ..workers.spec_part import PLAIN_TEXT, Finite, PathText, SpecPart
from ..workers.storage.uri import Address
from .policy_spec import CommandPolicy, Policy
from .program_spec import (
    Argument,
    Code,
    CommandLayout,
    Environment,
    FileTarget,
    ProgramCheckpoints,
    RayNodes,
    read_ray,
)

Label = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")
]
LabelValue = Annotated[str, StringConstraints(max_length=255, pattern=PLAIN_TEXT)]
_LABEL_VALUE: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
#: A value of a Ray label.
GpuModel = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=_LABEL_VALUE)]
VariableName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableValue = Annotated[str, StringConstraints(max_length=4096, pattern=PLAIN_TEXT)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]


def _keys_by_pattern(schema: dict[str, Any]) -> None:
    """A mapping's schema that refuses other keys, as the server does. (pydantic's `patternProperties` allows them.)"""
    [(pattern, value)] = schema.pop("patternProperties").items()
    schema["propertyNames"] = {**schema.get("propertyNames", {}), "pattern": pattern}
    schema["additionalProperties"] = value


MOST_LABELS: Final = 64
Labels = Annotated[dict[Label, LabelValue], Field(max_length=MOST_LABELS, json_schema_extra=_keys_by_pattern)]


class Resources(SpecPart):
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Kind of devices; `auto`: GPUs if the cluster has them, else CPUs."
    )
    gpu: GpuModel | None = Field(
        None,
        description="Model of all GPUs, as `shardyard nodes` names it, such as H100. `mixed`: several models in one gang; the slowest sets "
        "the pace. null: any model, the same for all ranks.",
    )
    within: Literal["zone", "domain"] | None = Field(
        None,
        description="Place all ranks in one availability zone, or in one NVLink domain (`ray.io/gpu-domain`), and wait until one has room. "
        "null: in as few as possible.",
    )
    cpus_per_gpu: Finite = Field(
        0,
        ge=0,
        le=1024,
        description="CPU cores that each rank on a GPU reserves, so that no rank on CPUs gets them. 0: none.",
    )
    env: dict[VariableName, VariableValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Environment variables for the ranks, such as NCCL_DEBUG. They win over those of the machines. Specs are visible to "
        "all users: see `secrets`.",
        json_schema_extra=_keys_by_pattern,
    )
    force: bool = Field(
        False, description="Run the job even if its memory plan exceeds its devices' memory. It may run out of memory."
    )

    @field_validator("gpu", mode="before")
    @classmethod
    def _is_not_a_number_of_gpus(cls, given: Any) -> Any:
        """As `8`, or as `H100:8` of other tools."""
        is_number = isinstance(given, int) and not isinstance(given, bool)
        if is_number or (isinstance(given, str) and re.fullmatch(_LABEL_VALUE, given) is None):
            raise Refusal(
                "",
                f"{given!r:.80} is not the name of a model of GPU.",
                "Write the model alone, as `shardyard nodes` names it, such as gpu: H100. The number of GPUs is that of the ranks: `ranks` "
                "of a command, and the degrees of `train.layout` of a training.",
            )
        return given

    @model_validator(mode="after")
    def _gpus_have_a_model(self) -> "Resources":
        if self.device == "cpu" and self.gpu is not None:
            raise ValueError("gpu names a model of GPU, and device is cpu: set device to cuda, or leave gpu out")
        return self


class SecretUse(SpecPart):
    """A secret that the ranks get. A plain word such as `HF_TOKEN` is its name."""

    name: VariableName = Field(description="Name of the secret, as `shardyard secrets` lists it.")
    variable: VariableName | None = Field(
        None,
        description="Environment variable that has its value, or the path of its file. null: named like the secret.",
    )
    file: bool = Field(
        False, description="Give the value in a file in memory, which ends with the rank, and its path in the variable."
    )

    @property
    def target(self) -> str:
        """The environment variable."""
        return self.variable or self.name


def _read_secret(given: Any) -> Any:
    """The object for a plain word; any other value unchanged."""
    return {"name": given} if isinstance(given, str) else given


Days = Annotated[Finite, Field(ge=0, le=36_500)]
#: Up to one TiB.
Mebibytes = Annotated[Finite, Field(ge=0, le=1 << 20)]


class Retention(SpecPart):
    """For how many days after the job's end its records are kept, and how much of them. Without a key, as the server is set."""

    logs_days: Days | None = Field(
        None,
        description="Days after the job's end for which its log lines are kept. 0: no limit by age. null: as the server is set.",
    )
    logs_mib: Mebibytes | None = Field(
        None,
        description="MiB of the newest log lines that are kept once the job has ended. A line counts with its text and 200 bytes for its "
        "row. 0 and null: no bound of the job's own; the server may bound the logs of all jobs.",
    )
    metrics_days: Days | None = Field(
        None,
        description="Days after the job's end for which its steps, logged metrics, rank samples and system metrics are kept. "
        "0: no limit by age. null: as the server is set.",
    )
    events_days: Days | None = Field(
        None,
        description="Days after the job's end for which its incidents, repairs, validations and faults are kept; its states, "
        "checkpoints and plan stay. 0: no limit by age. null: as the server is set.",
    )
    traces_days: Days | None = Field(
        None,
        description="Days after the job's end for which its traces are kept. 0: no limit by age. null: as the server is set.",
    )
    traces_mib: Mebibytes | None = Field(
        None,
        description="MiB of the newest traces that are kept once the job has ended. An older trace goes as a whole. 0 and null: no bound "
        "of the job's own; the server may bound the traces of all jobs.",
    )


class SpecOfJob(SpecPart):
    """What the specs of all kinds of jobs have in common."""

    api_version: Literal["shardyard/v1"] = Field(
        "shardyard/v1", alias="apiVersion", description="Version of the spec's format."
    )
    name: Name = Field(description="Name of the job: lower-case letters, digits and dashes.")
    resources: Resources = Resources()
    secrets: list[
        Annotated[SecretUse, BeforeValidator(_read_secret, json_schema_input_type=SecretUse | VariableName)]
    ] = Field(
        default_factory=list,
        max_length=64,
        description="Secrets for the ranks, by name. Their values are not in the spec, and are masked in logs.",
    )
    labels: Labels = Field(default_factory=dict)
    retention: Retention = Retention()


class JobSpec(SpecOfJob):
    """A training job, as YAML or JSON."""

    train: TrainSpec
    policy: Policy = Policy()

    @property
    def device(self) -> Literal["auto", "cpu", "cuda"]:
        """The kind of devices that the queue allocates. fp8 needs GPUs, and so does a job that names their model.

        Parameter servers need CPUs.
        """
        if self.train.layout.servers and self.resources.device == "auto" and self.resources.gpu is None:
            return "cpu"
        needs_gpus = self.train.precision.compute == "fp8" or self.resources.gpu is not None
        return "cuda" if self.resources.device == "auto" and needs_gpus else self.resources.device

    @property
    def world_size(self) -> int:
        return self.train.layout.world_size

    @property
    def image(self) -> str:
        """Of its nodes; empty: the cluster's own."""
        return ""

    @property
    def together(self) -> int:
        """The number of consecutive ranks that share a node: a tensor group, or one of its grids if it has several."""
        return self.train.layout.tensor // self.train.layout.division.copies


class CommandSpec(CommandLayout, SpecOfJob):
    """A job that runs a program of the user's own, one process per rank, as YAML or JSON."""

    command: (
        Annotated[list[Argument], Field(min_length=1, max_length=1024)] | Annotated[Argument, Field(min_length=1)]
    ) = Field(
        description="The program and its arguments, or text for bash (for sh on nodes without bash). Each rank runs it once, with the "
        "environment of torchrun: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and so on.",
    )
    command_per: Literal["rank", "node"] = Field(
        "rank",
        description="`rank`: each rank runs the command. `node`: one process per node runs it, and starts the node's ranks itself, as "
        "torchrun does; it finds the number of nodes, its own, and the number of its ranks in PET_NNODES, PET_NODE_RANK and "
        "PET_NPROC_PER_NODE, which torchrun reads.",
    )
    # A factory, so that the schema shows no object as the default of what may be null.
    code: Code | None = Field(
        default_factory=lambda: None,
        description="A folder or a repository of code to upload. null: the code is on the nodes already.",
    )
    files: dict[FileTarget, PathText] = Field(
        default_factory=dict,
        max_length=64,
        description="Path at which the program finds files → their source: s3://bucket/prefix, "
        "hf://[datasets/]org/name[@revision][/path], or a path that every node sees. The path is relative to the folder of `code`, and to "
        "that which SHARDYARD_FILES names. Each node fetches a source once, as it was when the job first read it. Files are read-only.",
        json_schema_extra=_keys_by_pattern,
    )
    cwd: str | None = Field(
        None,
        max_length=4096,
        pattern=PLAIN_TEXT,
        description="Folder in which the program starts, as every node sees it, or relative to the folder of `code`. null: that folder; "
        "without `code` the home folder of the user that runs the ranks.",
    )
    tensorboard: PathText | None = Field(
        None,
        description="Folder in which the program writes event files for TensorBoard, such as `runs`; relative to the folder in which the "
        "program starts. Scalars that are written there become logged metrics. Needs the package `tensorboard` on the nodes. null: none.",
    )
    ray: Annotated[RayNodes | None, BeforeValidator(read_ray, json_schema_input_type=RayNodes | bool | None)] = Field(
        default_factory=lambda: None,
        description="`true`, or settings: the command is a driver of Ray, such as a script with Ray Train. It runs once, on the first "
        "node, in a Ray cluster of the job's own, which RAY_ADDRESS names: a Ray node on each node of the job, with the GPUs of its ranks "
        "there, and for each rank a CPU, or `resources.cpus_per_gpu`. null: the command runs once per rank.",
    )
    env: Environment | None = Field(
        default_factory=lambda: None,
        description="The image of the program's nodes, and its Python environment. null: the cluster's own, and that of the nodes' Ray "
        "workers. Variables are in `resources.env`.",
    )
    checkpoint: ProgramCheckpoints = ProgramCheckpoints()
    resume_from: Address | None = Field(
        None,
        max_length=4096,
        description="A job that runs a command (id or name), a version of a model (models/NAME@ALIAS), or the path or s3:// URI of a "
        "checkpoint, which `shardyard.resume` returns until the job has one of its own.",
    )
    policy: CommandPolicy = CommandPolicy()

    @model_validator(mode="after")
    def _runs_once(self) -> "CommandSpec":
        if self.command_per == "node" and self.ranks_per_node is None:
            raise ValueError(
                "command_per is node, and ranks_per_node is not given: set it to the ranks that a node starts"
            )
        if self.command_per == "node" and self.ray is not None:
            raise ValueError("with ray the command runs once for the whole job: leave command_per out")
        return self

    @property
    def device(self) -> Literal["auto", "cpu", "cuda"]:
        """The kind of devices that the queue allocates. A job that names a model of GPU needs GPUs."""
        return "cuda" if self.resources.device == "auto" and self.resources.gpu is not None else self.resources.device

    @property
    def world_size(self) -> int:
        return self.ranks

    @property
    def image(self) -> str:
        """Of its nodes; empty: the cluster's own."""
        return (self.env and self.env.image) or ""


AnySpec = JobSpec | CommandSpec
#: Kinds of jobs: one that trains with Shardyard's loop, or one that runs a command.
JobKind = Literal["train", "command"]


def kind_of(document: Any) -> type[JobSpec] | type[CommandSpec]:
    """The kind of spec that a document, or a job's stored spec, is."""
    return CommandSpec if isinstance(document, dict) and "command" in document else JobSpec
