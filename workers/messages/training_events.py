"""Events of a training that goes well: states, plan, steps, measurements, checkpoints, log lines, summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .artifact import Artifact
from .event_type import Event
from .metric_block import MetricBlock
from .mounted_files import MountedFiles

#: Memory of a rank: allocated by torch on CUDA, else resident in the trainer's process.
MemorySource = Literal["allocated", "resident"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTraffic:
    """What one rank sends by one collective over one mesh axis in a step."""

    calls: int
    """How often the collective ran."""
    elements: float
    """Elements that the algorithm moves out of the rank, on any backend."""
    bytes: float
    """Bytes that the algorithm moves out of the rank, on any backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Peak bytes of one kind of memory, over all ranks."""

    min: int
    """Bytes on the rank with the smallest peak."""
    max: int
    """Bytes on the rank with the largest peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSpread:
    """A share of time (0 to 1), over all ranks."""

    min: float
    """Smallest share of any rank."""
    mean: float
    """Mean share of all ranks."""
    max: float
    """Largest share of any rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEvent(Event):
    """The job enters a state. The last event of a gang is a final state."""

    kind: ClassVar[str] = "state"
    state: str
    """The new state. A gang sends `starting`, `running`, `recovering`, `succeeded`, `failed` or `cancelled`."""
    reason: str | None
    """Code of the reason."""
    message: str | None
    """The reason in words."""
    attempt: int | None = None
    """Number of the attempt. The service sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent(Event):
    """What the gang is about to train."""

    kind: ClassVar[str] = "plan"
    layout: str
    """The layout in words."""
    world_size: int
    """Number of ranks."""
    parameters: int
    """Number of the model's parameters."""
    batch: str
    """The global batch as a product of its parts, in words."""
    tokens_per_step: int
    """Tokens of one step. A sample of a data source of the user's own counts as one token, here and in every count."""
    device: str
    """`cpu` or `cuda`."""
    train_tokens: int
    """Tokens of the training split; 0: a source of the user's own without end."""
    validation_tokens: int
    """Tokens of the validation split."""
    unigram_loss: float | None
    """Validation loss of a model that knows only token frequencies, in nats per token. Null: a source of the user's own."""
    stage_blocks: tuple[tuple[int, int], ...] | None = None
    """First block and one past the last block of each pipeline stage."""
    bubble_simulated: float | None = None
    """Share of the step (0 to 1) that the pipeline schedule leaves idle, with free messages."""
    precision: str | None = None
    """The dtype of computation. Null: an older trainer, which did not report it."""
    compile: bool | None = None
    """Whether blocks are compiled. Null: an older trainer, which did not report it."""
    choices: tuple[str, ...] | None = None
    """For each option that the trainers decide (`auto`, a split by profile): its value, and why."""
    capability: tuple[int, int] | None = None
    """CUDA compute capability of rank 0's GPU, major and minor. Null: a CPU, or an older trainer, which did not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSpeed:
    """One collective over one of the gang's process groups, timed."""

    axis: str
    """`world`, or the mesh axis."""
    collective: str
    """`broadcast`, `reduce`, `all_reduce`, `reduce_scatter`, `all_gather`, `all_to_all` or `send_recv`."""
    ranks: int
    """Number of ranks of the group."""
    bytes: int
    """The larger of what a rank sends and what it receives."""
    seconds: float
    """Seconds of a call on the slowest rank, median of several rounds."""
    bus_bandwidth: float
    """Bytes per second that each rank's link carries, as nccl-tests defines it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNetwork:
    """A node or a link that is much slower than the others."""

    rank: int
    """The first rank of the node, or a rank at one end of the link."""
    message: str
    """What is slow, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightEvent(Event):
    """The collectives of the gang's process groups, timed before the attempt trains."""

    kind: ClassVar[str] = "preflight"
    backend: str
    """Backend of the groups: `gloo` or `nccl`."""
    seconds: float
    """Seconds that it took."""
    speeds: tuple[CollectiveSpeed, ...]
    """Every collective over every group."""
    slow: tuple[SlowNetwork, ...] = ()
    """Nodes and links with less than half of the median bandwidth. Each is an incident as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNumbers(Event):
    """What rank 0 reports of a step, because it is true of the whole job."""

    # Pydantic reads the docstrings of a class's own fields only, so that inherited fields need `Field`.
    step: Annotated[int, Field(description="Number of the step, from 1.")]
    loss: Annotated[float | None, Field(description="Training loss of the step's batch, in nats per token.")] = None
    lr: Annotated[float | None, Field(description="Learning rate.")] = None
    grad_norm: Annotated[
        float | None, Field(description="Gradient norm before clipping. Null if it is not finite.")
    ] = None
    loss_scale: Annotated[float | None, Field(description="Loss scale of fp16.")] = None
    skipped: Annotated[
        bool | None,
        Field(description="True if fp16 gradients overflowed and no update was made. Null: not reported."),
    ] = None
    tokens: Annotated[int | None, Field(description="Tokens that the job has trained on, this step included.")] = None
    tokens_per_s: Annotated[float | None, Field(description="Tokens per second of the whole gang.")] = None
    tokens_per_s_device: Annotated[float | None, Field(description="Tokens per second and device.")] = None
    mfu: Annotated[float | None, Field(description="Model FLOPs utilisation, 0 to 1. Null on CPUs.")] = None
    logged: Annotated[
        Mapping[str, float | None] | None,
        Field(
            description="Means of what the model itself logged, by name, and what rank 0 did on the disk of its training state "
            "(`disk/…`). Null where one is not finite, or if none is."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent(StepNumbers):
    """One optimizer step of the whole job."""

    kind: ClassVar[str] = "step"
    step_s: float
    """Seconds of the step on rank 0."""
    step_s_min: float
    """Seconds of the step on the fastest rank."""
    step_s_median: float
    """Median over ranks of the step's seconds."""
    step_s_max: float
    """Seconds of the step on the slowest rank."""
    slowest_rank: int
    """The rank that was busy longest, for which the others wait; where that was not measured, the one with the longest step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMetricsEvent(Event):
    """What each rank did in the last seconds. All lists are by rank; seconds are means over the steps."""

    kind: ClassVar[str] = "rank_metrics"
    step: int
    """The newest step in the means."""
    steps: int
    """Number of steps in the means."""
    step_s: tuple[float | None, ...]
    """Seconds of a step."""
    timed_steps: int | None = None
    """Number of steps in the means of `busy_s` and `wait_s`, which GPUs measure in some steps only; null: all."""
    busy_s: tuple[float | None, ...]
    """Seconds of a step in which the rank worked."""
    wait_s: tuple[float | None, ...]
    """Seconds of a step in which the rank waited for other ranks."""
    memory: tuple[int | None, ...]
    """Bytes of memory, the newest value."""
    memory_of: MemorySource | None = None
    """Which memory is meant: `allocated` by torch on CUDA, or `resident` in the trainer's process."""
    nodes: tuple[str, ...] = ()
    """Ids of the gang's nodes."""
    node_of: tuple[int | None, ...] = ()
    """Index into `nodes`. Null if the rank's node is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEvent(Event):
    """Traffic and memory of one step, measured."""

    kind: ClassVar[str] = "probe"
    step: int
    """The measured step."""
    traffic: Mapping[str, Mapping[str, CollectiveTraffic]]
    """What rank 0 sends, by mesh axis and collective."""
    traffic_sum: Mapping[str, Mapping[str, CollectiveTraffic]]
    """What all ranks send together, by mesh axis and collective."""
    memory: Mapping[str, ByteRange]
    """Peak memory by kind: `parameters`, `gradients`, `optimizer`, `activations`, on CUDA `allocated`."""
    busy_s: tuple[float, ...]
    """Seconds in which each rank worked, by rank."""
    wait_s: tuple[float, ...]
    """Seconds in which each rank waited for other ranks, by rank."""
    bubble_measured: ShareSpread | None = None
    """Share of the schedule's time that ranks waited for other pipeline stages."""
    bubble_simulated: float | None = None
    """The same share in the simulated schedule, where messages take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalEvent(Event):
    """The loss on the validation split."""

    kind: ClassVar[str] = "eval"
    step: int
    """The step after which the model was validated."""
    loss: float | None
    """Validation loss, in nats per token."""
    unigram_loss: float | None
    """Validation loss of a model that knows only token frequencies, in nats per token. Null: a source of the user's own."""
    tokens: int
    """Number of validation tokens."""
    balance_loss: float | None = None
    """Load imbalance of the experts, mean over layers and tokens; 1 is even. Only of a mixture of experts."""
    router_z_loss: float | None = None
    """Router z-loss, mean over layers and tokens. Only of a mixture of experts."""
    dropped: float | None = None
    """Share of tokens (0 to 1) that experts dropped. Only of a mixture of experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEvent(Event):
    """A checkpoint is complete."""

    kind: ClassVar[str] = "checkpoint"
    step: int
    """The step whose state was saved."""
    path: str
    """Folder of the checkpoint."""
    bytes: int
    """Size of the checkpoint."""
    seconds: float
    """Seconds from the begin of the save until it was complete."""
    held_s: float
    """Seconds of the save for which training was paused."""
    kept: tuple[int, ...] | None
    """Steps of all complete checkpoints of the job after the save. Null if they are not known."""
    digest: str | None = None
    """Checksum of the checkpoint's manifest. Null if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportEvent(Event):
    """The final checkpoint was exported as a Hugging Face model."""

    kind: ClassVar[str] = "export"
    step: int
    """Step of the exported checkpoint."""
    path: str
    """Folder of the model."""
    files: int
    """Number of weight files."""
    parameters: int
    """Number of parameters."""
    bytes: int
    """Size of the weights."""
    seconds: float
    """Seconds of the export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent(Event):
    """Lines that one rank wrote."""

    kind: ClassVar[str] = "log"
    rank: int
    """The rank."""
    stream: str
    """`stdout` or `stderr`; beside the rank `exec` (commands) or `gate` (terminals and ports)."""
    first: int
    """Number of the first line, counted over all streams of the rank from 1."""
    lines: tuple[str, ...]
    """The lines, without line ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsEvent(Event):
    """Values that a program of the user's own logged on one rank."""

    kind: ClassVar[str] = "metrics"
    rank: int
    """The rank."""
    generation: int
    """Generation of the gang. Values of a later one replace those of earlier ones from its first step on."""
    blocks: tuple[MetricBlock, ...]
    """The values, in order."""
    restarts: int = 0
    """How often torchrun had started the ranks again in this generation. Values after a restart replace earlier ones, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEvent(Event):
    """What the nodes and ranks of the gang use. Names and units are those of `system_metrics.py`."""

    kind: ClassVar[str] = "system"
    nodes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Id of a node, or in some of the events `node/gpu` of one of its GPUs → metric → value."""
    ranks: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Metric → value of each rank; null where a rank has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactsEvent(Event):
    """Files that a program of the user's own logged on one rank, and that are stored now."""

    kind: ClassVar[str] = "artifacts"
    rank: int
    """The rank."""
    generation: int
    """Generation of the gang. Of equal name and step, a later one's replaces an earlier one's."""
    artifacts: tuple[Artifact, ...]
    """The files, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesEvent(Event):
    """What the sources of the job's `files` had when the job first read them. Every attempt sends the same."""

    kind: ClassVar[str] = "files"
    files: tuple[MountedFiles, ...]
    """The sources, in the spec's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEvent(Event):
    """The result of the training."""

    kind: ClassVar[str] = "summary"
    steps: int
    """Number of steps that this attempt trained."""
    tokens: int | None = None
    """Tokens that this attempt trained on."""
    first_loss: float | None = None
    """Loss of the first step with a finite loss; fp16 skips others."""
    last_loss: float | None = None
    """Mean loss of the last `last_steps` steps with a finite loss."""
    last_steps: int | None = None
    """Number of steps in `last_loss`."""
    validation_loss: float | None = None
    """The last validation loss."""
    unigram_loss: float | None = None
    """Validation loss of a model that knows only token frequencies, in nats per token."""
    tokens_per_s: float | None = None
    """Tokens per second of the whole gang, mean over all steps."""
    tokens_per_s_device: float | None = None
    """Tokens per second and device, mean over all steps."""
    mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1, mean over all steps. Null on CPUs."""
    mfu_formula: str | None = None
    """The formula of `mfu`."""
    time_to_first_step_s: float | None = None
    """Seconds from the job's creation to the end of its first step."""
    checkpoint: str | None = None
    """Folder of the newest checkpoint."""
    export: str | None = None
    """Folder of the Hugging Face model."""
