"""One CUDA GPU against the formulas: attention kernels, utilisation (MFU) of published sizes, memory. `make gpu-check` runs it.

    PYTHONPATH=typings python benchmarks/gpu.py [--presets 124M 1.3B] [--micro-batch 4] [--seq-len 2048] [--steps 12]

Needs torch, numpy and pydantic, and nothing else of the project's. Prints one table; exits with 1 when a check fails. `--device cpu` runs
the same code where there is no GPU, without utilisation, to try the script itself. Weights are drawn and text is the standard
library's, byte by byte, so a preset has fewer embeddings here than its name says: Ψ is printed.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from shardyard.strategies.context_parallel.attention_kernels import MATH, kernel_for
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer.assemble import train_on
from shardyard.workers.trainer.instruments import Instruments
from shardyard.workers.trainer.process_groups import formed_by_torchrun

#: [batch, heads, key heads, positions, head size]
SHAPES = [(2, 8, 8, 256, 64), (2, 8, 2, 256, 64), (1, 4, 4, 512, 128)]
#: Largest difference to fp64 that a kernel may show, in units of the dtype's rounding at the largest value.
ROUNDINGS = 8
#: Model state in 16-bit mixed precision: 16 bytes per parameter (1910.02054, section 3.1), and 2 more for gradients in fp32; within 2%.
STATE_BYTES, STATE_BOUND = 18, 0.02
WARM = 4

Row = tuple[str, str, bool]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--presets", nargs="+", default=["124M", "1.3B"])
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("No CUDA device here: nothing was checked.")
        return 0
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}")
    good = True
    with formed_by_torchrun(options.device) as device:
        for what, found, right in rows(device, options):
            print(f"  {'ok  ' if right else 'FAIL'} {what:<58} {found}", flush=True)
            good = good and right
    return 0 if good else 1


def rows(device: torch.device, options: argparse.Namespace) -> Iterator[Row]:
    for shape in SHAPES:
        for causal in (True, False):
            yield kernels(device, shape, causal)
    for preset in options.presets:
        yield from training(device, preset, options)


def kernels(device: torch.device, shape: tuple[int, ...], causal: bool) -> Row:
    """The kernel that training would take in bf16, forward and backward, against plain arithmetic in fp64."""
    batch, heads, key_heads, length, size = shape
    torch.manual_seed(0)
    q, grad = (torch.randn(batch, heads, length, size, device=device).bfloat16() for _ in range(2))
    k, v = (torch.randn(batch, key_heads, length, size, device=device).bfloat16() for _ in range(2))
    kernel = kernel_for(q)
    # The fused kernels know no shared key heads: strategies repeat them before.
    k, v = (x.repeat_interleave(heads // key_heads, dim=1) if kernel is not MATH else x for x in (k, v))
    found = _both(kernel, grad, q, k, v, causal)
    exact = _both(MATH, *(x.double() for x in (grad, q, k, v)), causal)
    worst = max(_roundings(a, b) for a, b in zip(found, exact, strict=True))
    what = f"attention {'x'.join(map(str, shape))}{' causal' if causal else ''}, bf16 against fp64"
    return what, f"{worst:.1f} roundings at most (bound {ROUNDINGS})", worst <= ROUNDINGS


def _both(kernel: Any, grad: Any, q: Any, k: Any, v: Any, causal: bool) -> list[torch.Tensor]:
    out, lse = kernel.forward(q, k, v, causal)
    return [out, *kernel.backward(grad, q, k, v, out, lse, causal)]


def _roundings(found: torch.Tensor, exact: torch.Tensor) -> float:
    unit = torch.finfo(found.dtype).eps * exact.abs().max()
    return float((found.double() - exact).abs().max() / unit)


def training(device: torch.device, preset: str, options: argparse.Namespace) -> Iterator[Row]:
    """A few steps of the real loop: rates, loss, and the probe's memory."""
    events = train(device, preset, options)
    steps = [data for kind, data in events if kind == "step"]
    (plan,) = (data for kind, data in events if kind == "plan")
    (probe,) = (data for kind, data in events if kind == "probe")
    psi = plan["parameters"]
    losses = [step["loss"] for step in steps]
    yield f"{preset}: loss falls", f"{losses[0]:.3f} → {losses[-1]:.3f}, Ψ = {psi:,}", losses[-1] < losses[0]
    seconds = statistics.median(step["step_s"] for step in steps[WARM:])
    speed = statistics.median(step["tokens_per_s"] for step in steps[WARM:])
    shares = [step["mfu"] for step in steps[WARM:] if step.get("mfu") is not None]
    note = f"MFU {statistics.median(shares):.1%}" if shares else "MFU unknown: no peak is known for this device"
    yield f"{preset}: speed", f"{speed:,.0f} tokens/s, {1e3 * seconds:.0f} ms/step, {note}", speed > 0
    yield from _memory(preset, psi, probe["memory"])


def train(device: torch.device, preset: str, options: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    spec = {
        "model": {"preset": preset},
        "data": {"seq_len": options.seq_len},
        "precision": "bf16",
        "optimizer": {"lr": 1e-4},
        "steps": options.steps,
        "global_batch": options.micro_batch,
        "eval": {"batches": 1},
        "checkpoint": {"final": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        places = {"checkpoints": Path(folder, "checkpoints"), "cache": Path(folder, "cache")}
        run = Run(job="gpu-check", train=TrainSpec.model_validate(spec), device=options.device, **places)
        train_on(run, device, lambda kind, data: events.append((kind, data)), Instruments())
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return events


def _memory(preset: str, psi: int, memory: dict[str, Any]) -> Iterator[Row]:
    state = sum(memory[part]["max"] for part in ("parameters", "gradients", "optimizer"))
    off = state / (STATE_BYTES * psi) - 1
    yield f"{preset}: model state against 18Ψ", f"{state / 2**30:.2f} GiB, {off:+.1%}", abs(off) <= STATE_BOUND
    if "allocated" in memory:
        peak, kept = memory["allocated"]["max"], memory["activations"]["max"]
        note = f"{peak / 2**30:.2f} GiB allocated at the peak, {peak / (state + kept):.2f} × state and activations"
        yield f"{preset}: peak", note, peak >= memory["parameters"]["max"]


if __name__ == "__main__":
    sys.exit(main())
