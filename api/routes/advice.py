"""Advice on the layout of a training job."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from ...service.jobs import advice
from ...service.jobs.advice import MOST_RANKS, AdviceRequest, Cpus
from ...service.schemas.advice import LayoutAdvice
from ...service.spec import JobSpec
from ...workers.advisor.known_hardware import Given
from ...workers.gpu_models import GpuModel
from ..errors import SHORTER_SPEC
from ..gpu_argument import gpu_model
from ..http import request_body
from ..http.dependencies import In
from ..http.problems import describe
from ..http.validation_errors import read_training_spec
from ..spec_document import Format, parse
from .jobs import OF_THE_SPEC

router = APIRouter(tags=["jobs"])

_EXAMPLE = {
    "name": "llama-7b",
    "train": {
        "model": {"family": "llama", "preset": "7B", "vocab": 32_000},
        "data": {"source": "python-stdlib", "seq_len": 4096},
        "precision": "bf16",
        "steps": 1000,
        "global_batch": 512,
    },
}
_BODY = request_body.described(["JobSpec"], {"7b": _EXAMPLE})


def _hardware(
    gpu: Annotated[
        str | None,
        Query(max_length=100, description="GPU model, such as H100. Default: H100; CPUs if the spec asks for them."),
    ] = None,
    gpus_per_node: Annotated[int | None, Query(ge=1, le=4096, description="Ranks of a node. Default: 8 GPUs.")] = None,
    intra_gbps: Annotated[
        float | None,
        Query(ge=0.001, le=1e6, description="Gbit/s of a GPU's link within a node. Default: the model's."),
    ] = None,
    inter_gbps: Annotated[
        float | None, Query(ge=0.001, le=1e6, description="Gbit/s of a GPU's network card. Default: 400.")
    ] = None,
    peak_tflops: Annotated[
        float | None, Query(ge=0.001, le=1e6, description="Peak TFLOP/s of a rank. Default: the model's.")
    ] = None,
    mfu: Annotated[
        float | None, Query(ge=0.01, le=1, description="Share of the peak that passes reach. Default: 0.5.")
    ] = None,
) -> tuple[GpuModel | None, Given]:
    """The hardware that a request names. Raises InvalidParameter."""
    model = None if gpu is None else gpu_model(gpu, "gpu")
    return model, Given(peak_tflops, mfu, intra_gbps, inter_gbps, gpus_per_node)


@router.post(
    "/jobs/advice",
    operation_id="adviseJob",
    summary="Advise on a job's layout",
    responses=describe(*OF_THE_SPEC),
    openapi_extra={"requestBody": _BODY},
)
async def advise_job(
    request: Request,
    context: In,
    hardware: Annotated[tuple[GpuModel | None, Given], Depends(_hardware)],
    world: Annotated[
        int | None, Query(ge=1, le=MOST_RANKS, description="Number of ranks. Default: the spec's.")
    ] = None,
    top: Annotated[int, Query(ge=1, le=100, description="Number of layouts, each of other degrees.")] = 10,
) -> LayoutAdvice:
    """Return the layouts with which a training job is fastest, by formulas. Nothing is stored, and no device is taken."""
    form = request_body.format_of(request)
    content = await request_body.read(request, remedy=SHORTER_SPEC)
    spec = await asyncio.to_thread(_read, content, form)
    model, given = hardware
    ranks = world or advice.ranks_of(spec)
    devices: Cpus | GpuModel = (
        Cpus(ranks) if model is None and spec.device == "cpu" else model or gpu_model("H100", "gpu")
    )
    return await advice.advice(context.settings, spec, context.files, AdviceRequest(ranks, devices, top, given))


def _read(content: bytes, form: Format) -> JobSpec:
    return read_training_spec(parse(content, form))
