"""Memory options: what a run trades for memory and time, as values that check themselves. Imports no torch.

Recompute saves memory and costs time, offload saves memory and costs traffic to the host, compiling saves time, and fp8 saves time
and costs accuracy. Combinations that do not work are refused here from numbers alone, like everything in `layout.py`.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .batch import Batch
from .layout import Layout, ModelFacts, Refusal, profiled

Mode = Literal["none", "full", "selective"]

#: Schedules that split a block's backward pass: gradients of inputs first, of weights later.
SPLIT_BACKWARD = ("zbv", "interleaved-zb", "zb-h1", "zb-h2", "dualpipev")


def splits_backward(layout: Layout) -> bool:
    """Whether the layout's schedule runs backward passes in two halves."""
    return layout.pipeline > 1 and layout.schedule in SPLIT_BACKWARD


#: Bytes of a buffer of an optimizer on the host, of which it has two for gradients and two for values.
OFFLOAD_BUCKET_BYTES: Final = 64 << 20
#: The same of an optimizer whose state is on a disk, which also has `DISK_BUFFERS` buffers for the values and moments of a bucket.
DISK_BUCKET_BYTES: Final = 16 << 20
DISK_BUFFERS: Final = 4
#: Buffers for parameters on a disk, each of the size of the largest module's param shards.
PARAMETER_BUFFERS: Final = 3


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Recompute(_Part):
    """Which activations a block does not keep. Also reads a word: `none`, `full`, `selective`, `every-3` (full, each third)."""

    mode: Mode = Field(
        "none",
        description="`none` keeps all; `full` keeps a block's input; `selective` keeps the results of linear layers, fused attention "
        "and communication, and computes the rest again.",
    )
    every: int = Field(1, ge=1, le=1024, description="Recompute every Nth block; the others keep everything.")


class Offload(_Part):
    """What is kept in host memory instead of device memory."""

    optimizer: float = Field(
        0.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the parameters whose optimizer state and step are on the host.",
    )
    to: Literal["host", "disk"] = Field(
        "host",
        description="Where that share's optimizer state is between steps: in host memory, or on a local disk of the node, in the "
        "folder `SHARDYARD_SCRATCH`. With `parameters` they and all optimizer state are there.",
    )
    parameters: bool = Field(
        False,
        description="Parameters, gradients and the whole optimizer on the host (ZeRO-3 only). With `to: disk` only gradients are in host "
        "memory.",
    )
    activations: bool = Field(False, description="Keep on the host what blocks save for the backward pass.")


@dataclass(frozen=True)
class MemoryOptions:
    """All memory options of a run, and whether its blocks are compiled."""

    recompute: Recompute = field(default_factory=Recompute)
    offload: Offload = field(default_factory=Offload)
    compile: bool = False


def read_recompute(given: Any) -> Any:
    """The object for a word such as `full`; anything else unchanged."""
    if not isinstance(given, str):
        return given
    word, _, number = given.partition("-")
    return {"mode": "full", "every": int(number)} if word == "every" and number.isdecimal() else {"mode": given}


RecomputeChoice = Annotated[
    Recompute,
    BeforeValidator(
        read_recompute, json_schema_input_type=Recompute | Mode | Annotated[str, Field(pattern=r"^every-\d+$")]
    ),
]


def check_memory_options(layout: Layout, memory_options: MemoryOptions) -> None:
    """Refuse combinations that do not work. Raises `Refusal`, whose remedy is the nearest combination that works."""
    recompute, offload, compiled = memory_options.recompute, memory_options.offload, memory_options.compile
    _check_grid(layout, memory_options)
    _check_profile(layout, memory_options)
    if compiled and splits_backward(layout):
        _check_regions(layout, recompute)
    if compiled and offload.activations:
        raise Refusal(
            "compile",
            "a compiled block chooses by itself what it keeps, and offload.activations cannot move it.",
            "Set compile or offload.activations to false.",
        )
    if compiled and layout.servers:
        raise Refusal(
            "compile",
            "workers of parameter servers run on CPUs, which gain little from compiled blocks, and none has been proved equal.",
            "Set compile to false.",
        )
    if recompute.mode == "selective" and offload.activations:
        raise Refusal(
            "offload.activations",
            "selective recompute keeps its results on the device, where offload.activations cannot take them.",
            "Set recompute to full or none.",
        )
    _check_offload(layout, offload)


def _check_regions(layout: Layout, recompute: Recompute) -> None:
    """What a split backward pass cannot have in its compiled regions."""
    if recompute.mode == "selective":
        raise Refusal(
            "compile",
            f"{layout.schedule} splits the backward pass, and selective recompute then keeps results of operators, "
            "which compiled code does not have.",
            "Set compile to false, or recompute to full or none.",
        )
    if layout.schedule == "dualpipev" and layout.expert > 1:
        raise Refusal(
            "compile",
            "the two passes of a pair of dualpipev hand over inside of blocks, where the compiler cannot follow.",
            "Set compile to false, or layout.schedule to zbv.",
        )


def check_compiled_parts(
    layout: Layout, memory_options: MemoryOptions, facts: ModelFacts, packed: bool, tensor_chunks: int
) -> None:
    """Refuse selective recompute of compiled blocks that are no single graph. Raises `Refusal`.

    It runs outside of compiled code then, and torch would compile nothing. Blocks of a user's own module are not known here.
    """
    if not memory_options.compile or memory_options.recompute.mode != "selective":
        return
    between = {
        "attention within packed documents": packed,
        "the exchange of rows with experts": facts.experts is not None,
        "the exchange of keys and values between context ranks": layout.ring > 1,
        "the sum over tensor ranks, if overlap.tensor_chunks is 1,": layout.tensor > 1 and tensor_chunks == 1,
    }
    what = next((name for name, holds in between.items() if holds), None)
    if what is not None:
        raise Refusal(
            "compile",
            f"{what} runs between compiled parts of a block, and selective recompute then keeps results of operators, "
            "which compiled code does not have.",
            "Set compile to false, or recompute to full or none.",
        )


def _check_grid(layout: Layout, memory_options: MemoryOptions) -> None:
    """What blocks on a grid send is not an operator that the compiler or selective recompute follows."""
    if layout.tensor_shape is None:
        return
    if memory_options.compile:
        raise Refusal(
            "compile",
            "torch cannot compile the messages of blocks on a grid of ranks.",
            "Set compile to false, or layout.tensor to a number.",
        )
    if memory_options.recompute.mode == "selective":
        raise Refusal(
            "recompute",
            "selective recompute keeps the results of linear layers, which are no single operators on a grid of ranks.",
            "Set recompute to full or none, or layout.tensor to a number.",
        )


def _check_profile(layout: Layout, memory_options: MemoryOptions) -> None:
    """A profile measures modules alone, each of them as every step runs it."""
    if not profiled(layout):
        return
    flops = "or leave split: profile out: FLOPs decide then."
    for name, given in (
        ("offload.activations", memory_options.offload.activations),
        ("offload.parameters", memory_options.offload.parameters),
    ):
        if given:
            message = f"a profile measures each module alone, without {name}."
            raise Refusal(name, message, f"Set {name} to false, {flops}")
    recompute = memory_options.recompute
    if recompute.mode != "none" and recompute.every > 1:
        message = f"a profile measures one of equal blocks, and only each {recompute.every}th is recomputed."
        raise Refusal("recompute", message, f"Set recompute to full, selective or none, {flops}")


def _check_offload(layout: Layout, offload: Offload) -> None:
    if layout.servers and offload.optimizer:
        raise Refusal(
            "offload.optimizer",
            "parameter servers hold all optimizer state, in the host memory of their own ranks.",
            "Set offload.optimizer to 0, or leave layout.parameter_server out.",
        )
    if offload.to == "disk" and not offload.optimizer and not offload.parameters:
        raise Refusal(
            "offload.to",
            "nothing is on the disk: offload.optimizer is 0 and offload.parameters false.",
            "Set offload.optimizer to 1, or offload.parameters to true (ZeRO-3), or leave offload.to out.",
        )
    if not offload.parameters:
        return
    if layout.zero != 3:
        raise Refusal(
            "offload.parameters",
            f"only ZeRO-3 gathers parameters when they are used; layout.zero is {layout.zero}.",
            "Set layout.zero to 3 (with layout.data of 2 or more), or offload.parameters to false.",
        )
    if offload.optimizer:
        raise Refusal(
            "offload.optimizer",
            "offload.parameters already moves all optimizer state and its step off the device.",
            "Set offload.optimizer to 0.",
        )


def check_tied(layout: Layout, memory_options: MemoryOptions, facts: ModelFacts) -> None:
    """Refuse to offload a part of the optimizer where two ranks of a pipeline hold a tied embedding. Raises `Refusal`."""
    apart = layout.stages - 1 not in layout.stages_of(0)
    if facts.tied and apart and offloads_a_part(memory_options):
        raise tied_apart()


def offloads_a_part(memory_options: MemoryOptions) -> bool:
    """Whether a rank updates some of its parameters on the device and others on the host."""
    return 0 < memory_options.offload.optimizer < 1


def tied_apart() -> Refusal:
    """What refuses a part of the optimizer on the host for ranks of a pipeline that hold one weight."""
    return Refusal(
        "offload.optimizer",
        "ranks of a pipeline share a weight, such as a tied embedding, and some would update it on the device and others on the host: "
        "their copies would differ in the last bits.",
        "Set offload.optimizer to 1 or 0, or layout.pipeline to 1.",
    )


#: fp8 kernels multiply over multiples of this number of tokens and channels.
FP8_STEP = 16


def check_fp8(layout: Layout, facts: ModelFacts, batch: Batch, seq_len: int) -> None:
    """Refuse combinations with fp8 that do not work. Raises `Refusal`."""
    cut = next((axis for axis in ("tensor", "context") if layout.degrees[axis] > 1), None)
    if cut is not None:
        what = "layer" if cut == "tensor" else "sequence"
        raise Refusal(
            f"layout.{cut}",
            f"fp8 scales a tensor by its maximum, and a rank would have only that of its part of a {what}.",
            f"Set layout.{cut} to 1, or precision to bf16.",
        )
    if facts.experts is not None:
        raise Refusal("precision", "experts multiply in stacks, for which there is no fp8 path.", "Use bf16.")
    if facts.dim is not None and facts.dim % FP8_STEP:  # every layer of a block has this width on one side
        raise Refusal(
            "precision",
            f"fp8 kernels multiply layers whose sides are multiples of {FP8_STEP}, and a width of {facts.dim} is a side of every layer.",
            f"Use a multiple of {FP8_STEP} as model.dim, or precision bf16.",
        )
    tokens = batch.micro_batch * seq_len
    if tokens % FP8_STEP:
        raise Refusal(
            "data.seq_len",
            f"fp8 kernels need multiples of {FP8_STEP} tokens, a micro-batch has {batch.micro_batch} × {seq_len}.",
            f"Use a multiple of {FP8_STEP}, for example {-(-seq_len // FP8_STEP) * FP8_STEP}, or precision bf16.",
        )
