"""`TrainSpec`, the `train` part of a job spec. Checks what needs no file and no device. Imports no torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..strategies.batch import Batch
from ..strategies.comm_overlap import Overlap, check_overlap
from ..strategies.delayed_rules import check_delayed
from ..strategies.layout import Layout, ModelFacts, Refusal
from ..strategies.layout_rules import check_layout, check_whole_samples
from ..strategies.loss_chunks import loss_chunk
from ..strategies.memory_options import (
    MemoryOptions,
    Offload,
    Recompute,
    RecomputeChoice,
    check_compiled_parts,
    check_fp8,
    check_memory_options,
    check_tied,
)
from ..strategies.packed_rules import check_packed
from ..strategies.stale_rules import check_own_clocks
from ..strategies.zero_plus_plus_rules import check_zero_plus_plus
from .data_spec import DataSpec as DataSpec  # noqa: PLC0414  (most import it from here)
from .model_spec import ModelSpec
from .models.hf_config import config_of, refuse_bytes
from .models.presets import Architecture
from .planned_memory import PlannedMemory
from .spec_part import Finite, SpecPart
from .storage.uri import Address, Storage, below

#: `auto`: `device_choices.py` decides when the kind of devices is known.
Dtype = Literal["auto", "fp64", "fp32", "bf16", "fp16", "fp8"]

#: A spec larger than this is refused unread.
MAX_SPEC_BYTES = 1 << 20


class OptimizerSpec(SpecPart):
    """AdamW (Loshchilov & Hutter, 1711.05101), or SGD with momentum `beta1`."""

    name: Literal["adamw", "sgd"] = "adamw"
    lr: Finite = Field(1e-3, gt=0, le=1e3, description="Peak learning rate.")
    beta1: Finite = Field(0.9, ge=0, lt=1)
    beta2: Finite = Field(0.95, ge=0, lt=1)
    eps: Finite = Field(1e-8, gt=0)
    weight_decay: Finite = Field(
        0.1, ge=0, description="Applied to matrices, embeddings and the head among them; not to norms and biases."
    )
    clip_norm: Finite | None = Field(
        1.0,
        gt=0,
        description="Global gradient norm above which gradients are scaled by clip_norm / (norm + 1e-6), as torch does; null: never.",
    )


class ScheduleSpec(SpecPart):
    """Learning rate over steps: linear warm-up to the peak, `optimizer.lr`, then `name` down to `min_ratio × lr` at the last step."""

    name: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: int = Field(
        0, ge=0, description="Steps of linear warm-up, of which the last has the peak; 0 and 1: step 1 has the peak."
    )
    min_ratio: Finite = Field(0.1, ge=0, le=1, description="The last step's rate over the peak; constant ignores it.")


class LossSpec(SpecPart):
    """Cross-entropy, with the two terms that steady training; validation measures cross-entropy alone."""

    label_smoothing: Finite = Field(
        0.0, ge=0, lt=1, description="Share of the target spread evenly over the vocabulary (1512.00567, section 7)."
    )
    z_loss: Finite = Field(
        0.0,
        ge=0,
        le=1,
        description="Weight of log²Z, which keeps logits near 0; PaLM's is 1e-4 (2204.02311, section 5).",
    )
    chunk_tokens: int | None = Field(
        None,
        ge=1,
        le=16_777_216,
        description="Number of tokens whose logits exist at a time on a rank; fewer need less memory. null: as many as take 256 MiB.",
    )


class PrecisionSpec(SpecPart):
    """The dtype of computation and of gradient sums. A plain word such as `bf16` sets the first."""

    compute: Dtype = Field(
        "auto",
        description="fp64 (for proofs), fp32, bf16, fp16 with dynamic loss scaling, or fp8 (GPUs of compute capability 8.9, with torchao). "
        "`auto`: bf16 on GPUs of compute capability 8.0 or newer, else fp32.",
    )
    gradients: Literal["fp32", "compute"] = Field(
        "fp32",
        description="Dtype in which gradients are summed over micro-batches and ranks: `fp32` (fp64 with fp64), or `compute`, which saves "
        "2 bytes per gradient and loses digits with every micro-batch. ZeRO-3 always sums in fp32.",
    )


def read_precision(given: Any) -> Any:
    """The object for a plain word; any other value unchanged."""
    return {"compute": given} if isinstance(given, str) else given


PrecisionChoice = Annotated[
    PrecisionSpec, BeforeValidator(read_precision, json_schema_input_type=PrecisionSpec | Dtype)
]


def read_layout(given: Any) -> Any:
    """The object for the word `auto`; any other value unchanged."""
    return {"auto": {}} if given == "auto" else given


LayoutChoice = Annotated[Layout, BeforeValidator(read_layout, json_schema_input_type=Layout | Literal["auto"])]


class EvalSpec(SpecPart):
    every: int | None = Field(
        None, ge=1, description="Number of steps between validations; the last step is always validated."
    )
    batches: int = Field(8, ge=1, le=100_000, description="Global batches per validation.")


class ProbeSpec(SpecPart):
    """Probe steps measure bytes moved per axis and collective, and memory. Other steps cost nothing."""

    every: int | None = Field(
        1000, ge=1, description="Number of steps between probes; step 2 is probed too. null: never."
    )

    def due(self, step: int) -> bool:
        """Whether the 1-based `step` is a probe; step 2 stands for the first after buffers were made."""
        return self.every is not None and (step == 2 or step % self.every == 0)


class CheckpointSpec(SpecPart):
    every: int | None = Field(
        None,
        ge=1,
        description="Number of steps between checkpoints; the last step is saved too unless `final` is false.",
    )
    keep: int = Field(2, ge=1, le=1000, description="Number of newest checkpoints to keep.")
    final: bool = Field(True, description="Save after the last step.")
    uri: Storage | None = Field(
        None,
        description="Folder of the checkpoints, `s3://bucket/prefix` or a path; the job's own folder is made in it. null: the server's.",
    )
    export: bool = Field(
        False,
        description="Write the final weights as a Hugging Face folder, export-NNNNNNNN beside the checkpoints, too.",
    )


class SnapshotSpec(SpecPart):
    """Snapshots: copies of the training state in host memory, from which a gang that lost a rank continues.

    They take twice the memory of parameters and optimizer state.
    """

    every: int | None = Field(
        None,
        ge=0,
        description="Number of steps between snapshots; 0: none; null: as many as cost at most 2% of the time, and 50 where workers of "
        "parameter servers have clocks of their own, and for 2bw and pipedream without clipping.",
    )


class ReplicaCheckSpec(SpecPart):
    """Compares replicas of parameters and optimizer state over ranks by checksums, bit by bit.

    Unless `every` is 0, replicas are compared before each checkpoint, too. A difference is reported as an incident
    (`replica_mismatch`), and the gang continues from the newest checkpoint.
    """

    every: int | None = Field(
        None,
        ge=0,
        description="Number of steps between comparisons; null: as many as take at most 0.5% of the time; 0: never.",
    )


class TrainSpec(SpecPart):
    """Everything the training loop needs; also runs without the service: `torchrun -m shardyard.workers.local SPEC`."""

    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    layout: LayoutChoice = Field(
        default_factory=Layout,  # generators of clients cannot read an object as the default beside the word
        description="Degrees and variants of parallelism. `auto`: the fastest layout that fits on all devices, by the layout advisor. It "
        "chooses `recompute` and `offload` too, unless they are given.",
    )
    precision: PrecisionChoice = Field(
        PrecisionSpec(),
        description="auto, fp64, fp32, bf16, fp16, fp8, or an object that names the dtype of gradients, too.",
        json_schema_extra={"default": "auto"},  # generators of clients want a default of the last type
    )
    loss: LossSpec = LossSpec()
    recompute: RecomputeChoice = Field(
        Recompute(), description="Activation recompute per block: none, full, selective, every-<n>, or an object."
    )
    offload: Offload = Offload()
    compile: bool | Literal["auto"] = Field(
        "auto",
        description="Compile each block with torch.compile. Compiling takes minutes at every start. Every node needs a compiler: of C++ "
        "for CPUs, of C for GPUs. `auto`: on GPUs, for 500 steps or more, if layout and options allow it; the reason is reported.",
    )
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    steps: int = Field(ge=1, le=1_000_000_000)
    global_batch: int = Field(ge=1, le=16_777_216, description="Sequences per optimizer step, over all ranks.")
    seed: int = Field(0, ge=0, lt=2**63)
    deterministic: bool = Field(
        False,
        description="Use deterministic algorithms on GPUs, which are slower: two runs on the same layout and the same model of GPU then "
        "agree to the bit. On CPUs they do without it.",
    )
    eval: EvalSpec = EvalSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    snapshot: SnapshotSpec = SnapshotSpec()
    replica_check: ReplicaCheckSpec = ReplicaCheckSpec()
    overlap: Overlap = Overlap()
    probe: ProbeSpec = ProbeSpec()
    resume_from: Address | None = Field(
        None,
        max_length=4096,
        description="A job (id or name), a version (models/NAME@ALIAS) or a checkpoint's path or s3:// URI, of any layout.",
    )
    resume_data: Literal["continue", "restart"] = Field(
        "continue",
        description="With resume_from: `continue` starts at the sample after the checkpoint's last one and refuses another corpus, "
        "tokenizer, data.seq_len, data.validation or seed. `restart` starts at the first sample and keeps weights, optimizer and step.",
    )
    planned: PlannedMemory | None = Field(
        default_factory=lambda: None,
        description="Memory plan of a module of your own, by a dry run where it was submitted. The command line and the Python client set "
        "it. null: none.",
    )

    @model_validator(mode="after")
    def _resumes_what_it_restarts(self) -> "TrainSpec":
        if self.resume_data == "restart" and self.resume_from is None:
            raise ValueError("resume_data: restart needs resume_from: a job or a checkpoint to continue from")
        return self

    def checkpoints(self, default: str, job: str) -> str:
        """The address of the job's checkpoint folder, below `default` unless the spec names another one."""
        return below(self.checkpoint.uri or default, job)

    @property
    def undecided(self) -> bool:
        """Whether the layout advisor has yet to choose the layout."""
        return self.layout.auto is not None and self.layout.auto.undecided

    def refuse_undecided(self) -> None:
        """Raise `Refusal` for a layout that the layout advisor has yet to choose, where one must have been chosen."""
        if self.undecided:
            message = "no layout has been chosen yet: auto is decided by a submission, or by shardyard run --local."
            raise Refusal("layout", message, "Write the layout that shardyard advise shows.")

    @property
    def ends_apart(self) -> bool:
        """Whether the ranks of a pipeline with delayed gradients end a step at different times: no sum over them decides the update."""
        return self.layout.versions > 1 and self.optimizer.clip_norm is None and not self.data.is_packed

    @property
    def memory_options(self) -> MemoryOptions:
        """Those options. An undecided `auto` counts as not compiled: it is never what is refused."""
        return MemoryOptions(self.recompute, self.offload, self.compile is True)

    def architecture(self, vocab: int) -> Architecture | None:
        found = self.model.architecture(vocab, self.data.seq_len)
        if self.model.from_ is not None and self.data.tokenizer == "bytes":
            refuse_bytes(Path(self.model.from_).expanduser())
        return found

    def facts(self, vocab: int = 256) -> ModelFacts:
        """What the layout must know of the model; `vocab` is the tokenizer's size."""
        arch = self.architecture(vocab)
        return ModelFacts(None, None, None, None) if arch is None else facts_of(arch)

    def check(self, vocab: int = 256) -> Batch:
        """The batch maths; raises `strategies.layout.Refusal` for what this model cannot do on this layout."""
        return self.check_facts(self.facts(vocab))

    def check_facts(self, facts: ModelFacts) -> Batch:
        """`check`, for a model of which this much is known."""
        self.refuse_undecided()
        check_memory_options(self.layout, self.memory_options)
        check_overlap(self.layout, self.overlap)
        self._check_export()
        self._check_loss()
        self._check_own_source()
        check_tied(self.layout, self.memory_options, facts)
        check_delayed(self.layout, self.memory_options, facts, self.precision.compute)
        check_own_clocks(self.layout, self.precision.compute)
        if self.data.is_packed:
            check_packed(self.layout)
        batch = check_layout(self.layout, facts, self.global_batch, self.data.seq_len)
        check_zero_plus_plus(self.layout, self.memory_options, facts, self.precision.compute)
        if self.precision.compute == "fp8":
            check_fp8(self.layout, facts, batch, self.data.seq_len)
        return batch

    def check_compiled(self, facts: ModelFacts) -> None:
        """Raise `Refusal` where `compile: true` would compile nothing. Ranks do not ask: a job that was accepted before trains, too."""
        chunks = self.overlap.tensor_chunks
        check_compiled_parts(self.layout, self.memory_options, facts, self.data.is_packed, chunks)

    def loss_chunk(self, batch: Batch, vocab: int) -> int | None:
        """The number of tokens whose logits exist at a time; None: all of a micro-batch."""
        if self.layout.tensor_shape is not None:
            return None  # a grid cuts the logits of a token over its columns, and the tokens over its rows
        tokens = batch.micro_batch * self.data.seq_len // self.layout.context
        return loss_chunk(tokens, vocab, self.layout.tensor, self.loss.chunk_tokens)

    def _check_loss(self) -> None:
        if self.loss.chunk_tokens is not None and self.layout.tensor_shape is not None:
            raise Refusal(
                "loss.chunk_tokens",
                "a grid of ranks computes the loss of a micro-batch at once: its rows and columns divide the logits.",
                "Leave loss.chunk_tokens out, set a smaller layout.micro_batch, or layout.tensor to a number.",
            )
        if self.loss.chunk_tokens is not None and self.model.import_ is not None:
            raise Refusal(
                "loss.chunk_tokens",
                "a module of your own returns whole logits, so its loss cannot be computed in chunks.",
                "Leave loss.chunk_tokens out.",
            )

    def _check_own_source(self) -> None:
        """Refuse what needs token ids, if the samples come from a source of the user's own."""
        if not self.data.is_own:
            return
        if self.model.import_ is None:
            raise Refusal(
                "data.source",
                f"{self.data.source} is a source of your own, and only a module of your own can read its samples.",
                "Name the module in model.import, or use data.source: text.",
            )
        check_whole_samples(self.layout)
        for name in ("label_smoothing", "z_loss"):
            if getattr(self.loss, name):
                raise Refusal(
                    f"loss.{name}", "with a source of your own the module computes its loss.", f"Leave loss.{name} out."
                )
        if self.precision.compute == "fp8":
            raise Refusal("precision", "fp8 needs token ids, and a source of your own has none.", "Use bf16.")

    def _check_export(self) -> None:
        """Refuse now what could not be exported when all is trained. What came from a Hugging Face folder goes back."""
        if not self.checkpoint.export or (self.checkpoint.final and self.model.from_ is not None):
            return
        never = "Set checkpoint.export to false."
        if not self.checkpoint.final:
            raise Refusal(
                "checkpoint.export", "it is made of the final checkpoint.", f"Set checkpoint.final to true. {never}"
            )
        arch = self.architecture(256)
        if arch is None:
            raise Refusal("checkpoint.export", "transformers does not know a module of your own.", never)
        try:
            config_of(arch, "float32", None)
        except ValueError as error:
            raise Refusal("checkpoint.export", f"{error}.", never) from None


def facts_of(arch: Architecture) -> ModelFacts:
    """What the layout must know of `arch`."""
    return ModelFacts(arch.layers, arch.heads, arch.kv_heads, arch.hidden, arch.experts, arch.dim, arch.tied)


class Run(BaseModel):
    """What one attempt's trainers need: the spec and the places of its files. Plain data, sent as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: str
    attempt: int = 1
    train: TrainSpec
    device: Literal["cpu", "cuda"] = "cpu"
    preflight: bool = False  # whether the first generation times its collectives before it trains
    checkpoints: Address  # this job's own folder: step-00000100/ … below it
    cache: Path  # token caches, keyed by content, shared by all jobs of a node
    scratch: Path | None = None  # folder of each node for training state on a disk; None: `scratch` in the cache
    resume: Address | None = (
        None  # another job's checkpoint, or the folder in which they lie; the job's own newest wins over it
    )
