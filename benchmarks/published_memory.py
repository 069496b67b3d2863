"""The memory of published training runs beside what a dry run says of the same model, layout and batch.

    python benchmarks/published_memory.py [--only NAME …]

Published figures are peaks of a whole job (the fullest rank), of the caching allocator where the source says so. A dry run counts tensors
alone. Neither fp8 nor compile is covered by a dry run: where a source has only figures with them, the row says so. The published runs
held whole logits, so that is what is compared; beside it stands what the same run needs with the loss in chunks, as it is by default.
"""

import argparse
from dataclasses import dataclass
from typing import Any

from shardyard.workers.dry_run.processes import Request, dry_runs, representatives
from shardyard.workers.dry_run.report import DryRun
from shardyard.workers.gpu_models import gpu_named
from shardyard.workers.spec import TrainSpec

GIB = 2**30
TORCHTITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
#: Tokens of a chunk that no micro-batch has.
WHOLE = 1 << 24
LLAMA_3 = {"vocab": 128_256, "rope_theta": 500_000.0}


@dataclass(frozen=True)
class Published:
    """One configuration; `gib` is None where no figure is published."""

    name: str
    source: str
    gib: float | None
    train: dict[str, Any]


def spec(model: dict[str, Any], layout: dict[str, Any], global_batch: int, recompute: str, seq_len: int = 8192) -> Any:
    return {
        "model": model,
        "data": {"seq_len": seq_len},
        "layout": layout,
        "global_batch": global_batch,
        "recompute": recompute,
        "precision": "bf16",
        "steps": 1,
    }


LLAMA_405B = {**LLAMA_3, "preset": "70B", "layers": 126, "dim": 16_384, "heads": 128, "kv_heads": 8, "hidden": 53_248}
GPT_3 = {
    "family": "gpt2", "preset": "1.3B", "layers": 96, "dim": 12_288, "heads": 96, "kv_heads": 96, "hidden": 49_152,
    "vocab": 51_200, "tied": True,
}  # fmt: skip

PUBLISHED = (
    Published(
        "Llama 3 8B, 8 GPUs",
        f"{TORCHTITAN}, table 1",
        82.4,
        spec({**LLAMA_3, "preset": "8B"}, {"data": 8, "zero": 3, "micro_batch": 2}, 16, "selective"),
    ),
    Published(
        "Llama 3 8B, 128 GPUs",
        f"{TORCHTITAN}, table 3",
        67.0,
        spec({**LLAMA_3, "preset": "8B"}, {"data": 128, "zero": 3, "micro_batch": 2}, 256, "selective"),
    ),
    Published(
        "Llama 3 70B, 256 GPUs",
        f"{TORCHTITAN}, table 4 (compile and fp8)",
        71.9,
        spec({**LLAMA_3, "preset": "70B"}, {"data": 32, "tensor": 8, "zero": 3, "micro_batch": 16}, 512, "full"),
    ),
    Published(
        "Llama 3 405B, 512 GPUs",
        f"{TORCHTITAN}, table 5 (compile and fp8; 8 micro-batches are assumed)",
        82.5,
        spec(LLAMA_405B, {"data": 8, "tensor": 8, "pipeline": 8, "zero": 3, "micro_batch": 4}, 256, "full"),
    ),
    Published(
        "Mixtral 8×7B, 64 GPUs",
        "",
        None,
        spec(
            {"family": "moe", "preset": "mixtral-8x7B", "vocab": 32_000},
            {"data": 64, "expert": 8, "zero": 3, "micro_batch": 1},
            64,
            "full",
            seq_len=4096,
        ),
    ),
    Published(
        "GPT-3 175B, 64 GPUs",
        "",
        None,
        spec(GPT_3, {"tensor": 8, "pipeline": 8, "micro_batch": 1}, 64, "selective", seq_len=2048),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[one.name for one in PUBLISHED], metavar="NAME")
    options = parser.parse_args()
    print(
        "| run | published, GiB | whole logits, GiB | ratio | in chunks, GiB | of which | source |\n|---|---|---|---|---|---|---|"
    )
    for one in PUBLISHED:
        if one.name in options.only:
            print(row(one), flush=True)


def row(one: Published) -> str:
    whole, chunks = (fullest({**one.train, **more}) for more in ({"loss": {"chunk_tokens": WHOLE}}, {}))
    found = whole.peak_bytes / GIB
    held = ", ".join(f"{kind} {held / GIB:.1f}" for kind, held in chunks.by_kind.items() if held >= GIB / 20)
    published = ("", "") if one.gib is None else (f"{one.gib:.1f}", f"{found / one.gib:.2f}")
    ours = f"{chunks.peak_bytes / GIB:.1f} | {held}"
    return f"| {one.name} | {published[0]} | {found:.1f} | {published[1]} | {ours} | {one.source} |"


def fullest(given: dict[str, Any]) -> DryRun:
    """The report of the rank that needs most."""
    train, gpu = TrainSpec.model_validate(given), gpu_named("H100")
    assert gpu is not None
    # Of a pipeline the ends: the first holds most activations, the last the logits.
    places = representatives(train.layout)
    reports = dry_runs([Request(train, 256, gpu, rank) for rank in dict.fromkeys((places[0], places[-1]))])
    return max(reports, key=lambda report: report.peak_bytes)


if __name__ == "__main__":
    main()
