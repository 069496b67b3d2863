"""Specs that cannot fit on the GPUs that they name: published models and some of ours, on layouts that a first try would have."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unfit:
    """A train spec, and the GPU model that it does not fit on."""

    gpu: str
    train: dict[str, Any]


LLAMA3_8B = {"preset": "8B", "vocab": 128256}
LLAMA3_70B = {"preset": "70B", "vocab": 128256}
LLAMA3_405B = {"layers": 126, "dim": 16384, "heads": 128, "kv_heads": 8, "hidden": 53248, "vocab": 128256}
LLAMA2_7B = {"preset": "7B", "vocab": 32000}
GPT3_175B = {"family": "gpt2", "layers": 96, "dim": 12288, "heads": 96, "hidden": 49152, "vocab": 51200}
GPT3_13B = {"family": "gpt2", "layers": 40, "dim": 5120, "heads": 40, "hidden": 20480, "vocab": 51200}
MIXTRAL = {"family": "moe", "preset": "mixtral-8x7B", "vocab": 32000}
OLMOE = {"family": "moe", "preset": "olmoe-1B-7B", "vocab": 50304}
SMALL = {"preset": "124M", "vocab": 50304}
MEDIUM = {"preset": "1.3B", "vocab": 50304}


def _unfit(gpu: str, model: dict[str, Any], layout: dict[str, Any], batch: int, seq: int, **more: Any) -> Unfit:
    base = {"model": model, "layout": layout, "data": {"seq_len": seq}, "global_batch": batch, "steps": 10}
    return Unfit(gpu, {**base, "precision": "bf16", **more})


FULL: dict[str, Any] = {"recompute": "full"}

UNFIT: dict[str, Unfit] = {
    "8B-replicas": _unfit("H100", LLAMA3_8B, {"data": 8}, 8, 8192),
    "8B-zero1": _unfit("H100", LLAMA3_8B, {"data": 8, "zero": 1}, 16, 8192),
    "8B-zero3-long": _unfit("H100", LLAMA3_8B, {"data": 8, "zero": 3}, 64, 8192),
    "8B-a100-40": _unfit("A100 40GB", LLAMA3_8B, {"data": 8, "zero": 1}, 16, 4096, **FULL),
    "8B-one-gpu": _unfit("H100", LLAMA3_8B, {}, 4, 4096),
    "8B-tensor8": _unfit("H100", LLAMA3_8B, {"tensor": 8}, 64, 8192),
    "8B-fp32": _unfit("H100", LLAMA3_8B, {"data": 8, "zero": 1}, 8, 8192, precision="fp32"),
    "8B-long": _unfit("H100", LLAMA3_8B, {"data": 2, "context": 4, "zero": 3}, 16, 32768),
    "70B-zero3": _unfit("H100", LLAMA3_70B, {"data": 64, "zero": 3}, 512, 8192),
    "70B-tensor8": _unfit("H100", LLAMA3_70B, {"data": 8, "tensor": 8}, 64, 8192),
    "70B-one-node": _unfit("H100", LLAMA3_70B, {"tensor": 8}, 16, 4096),
    "70B-pipeline": _unfit("A100 80GB", LLAMA3_70B, {"pipeline": 8, "tensor": 4, "micro_batch": 4}, 128, 8192),
    "70B-zero1-tensor8": _unfit("H200", LLAMA3_70B, {"data": 4, "tensor": 8, "zero": 1}, 64, 8192),
    "70B-a100-zero3": _unfit("A100 40GB", LLAMA3_70B, {"data": 32, "zero": 3}, 64, 4096, **FULL),
    "405B-zero3": _unfit("H100", LLAMA3_405B, {"data": 512, "zero": 3}, 512, 8192),
    "405B-tensor8": _unfit("H100", LLAMA3_405B, {"data": 64, "tensor": 8, "zero": 1}, 256, 8192),
    "405B-pipeline": _unfit("H100", LLAMA3_405B, {"tensor": 8, "pipeline": 8, "data": 2}, 64, 8192),
    "405B-b200": _unfit("B200", LLAMA3_405B, {"tensor": 8, "data": 8, "zero": 3}, 64, 8192),
    "gpt3-replicas": _unfit("A100 80GB", GPT3_175B, {"tensor": 8}, 64, 2048),
    "gpt3-pipeline": _unfit("A100 80GB", GPT3_175B, {"tensor": 8, "pipeline": 4}, 64, 2048),
    "gpt3-zero3": _unfit("A100 40GB", GPT3_175B, {"data": 64, "zero": 3}, 256, 2048),
    "gpt3-13b": _unfit("V100 32GB", GPT3_13B, {"data": 16, "zero": 1}, 64, 2048, precision="fp16"),
    "mixtral-replicas": _unfit("H100", MIXTRAL, {"data": 8, "expert": 8}, 16, 4096),
    "mixtral-zero1": _unfit("H100", MIXTRAL, {"data": 16, "expert": 8, "zero": 1}, 64, 8192),
    "mixtral-tensor": _unfit("A100 80GB", MIXTRAL, {"data": 4, "tensor": 4}, 16, 4096),
    "olmoe-one-gpu": _unfit("A100 40GB", OLMOE, {"data": 2}, 16, 4096),
    "7B-l4": _unfit("L4", LLAMA2_7B, {"data": 8, "zero": 3}, 16, 2048),
    "7B-l40s": _unfit("L40S", LLAMA2_7B, {"data": 4, "zero": 2}, 16, 4096),
    "1.3B-t4": _unfit("T4", MEDIUM, {"data": 4}, 16, 1024, precision="fp16"),
    "1.3B-a10g": _unfit("A10G", MEDIUM, {"data": 8, "zero": 1}, 64, 2048),
    "124M-batch": _unfit("H100", SMALL, {"data": 2}, 512, 1024),
    "124M-t4": _unfit("T4", SMALL, {"data": 4, "zero": 1}, 128, 2048, precision="fp16"),
}
