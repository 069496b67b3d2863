"""What tracing costs: real ranks that trace a block of steps and then train one without, again and again, in one run.

    python benchmarks/trace_cost.py [--layout '{"data": 2, "zero": 1}'] [--seconds 60]

Ratios are of two neighbouring blocks, and their median, minimum and maximum are printed: of the steps alone, as each reports its seconds;
of the whole block, with what a trace does between steps (clocks aligned twice, all reported); and of the processor time that all ranks
took for it, which what else the machine does disturbs less. Off: how many looks a step takes whether a trace runs, and what one costs.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.patience import PATIENCE_S  # noqa: E402
from harness.ranks import group, spawn  # noqa: E402

#: Steps before the first block, of a block, and of a trace within: its begin and end lie between steps of the block.
WARM, BLOCK, TRACED = 20, 20, 18

MODEL = {"preset": "nano", "layers": 4, "dim": 64, "heads": 4, "kv_heads": 2, "hidden": 128}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layout", type=json.loads, default={"data": 2, "zero": 1})
    parser.add_argument("--seconds", type=float, default=60.0, help="until the last pair of blocks begins")
    options = parser.parse_args()
    train = {
        "model": MODEL,
        "data": {"seq_len": 64},
        "layout": options.layout,
        "global_batch": 8,
        "precision": "fp32",
        "steps": 100_000,
        "eval": {},
        "checkpoint": {"final": False},
        "snapshot": {"every": 0},
        "probe": {"every": None},
        "replica_check": {"every": 0},
    }
    with tempfile.TemporaryDirectory() as folder:
        found = costs(train, Path(folder), options.seconds)
    _say("steps while traced / not", found["steps"])
    _say("blocks with a trace / without", found["blocks"])
    _say("their processor time", found["processors"])
    step_s, looks, look_s = found["step_s"], found["looks"], look_seconds()
    share = looks * look_s / step_s
    sys.stdout.write(f"off: {looks} looks of {1e9 * look_s:.0f} ns in a step of {1e3 * step_s:.1f} ms: {share:.5%}\n")


def _say(what: str, ratios: list[float]) -> None:
    middle = statistics.median(ratios)
    sys.stdout.write(f"{what}: {middle:.4f} ({min(ratios):.4f} to {max(ratios):.4f}), {len(ratios)} pairs\n")


def look_seconds() -> float:
    """What a span costs while no step is traced, entered and left."""
    from shardyard.strategies.telemetry.current import current

    def look() -> None:
        with current().tracer.span("forward", "forward"):
            pass

    return min(timeit.repeat(look, number=100_000, repeat=5)) / 100_000


def costs(train: dict[str, Any], folder: Path, enough_s: float) -> dict[str, Any]:
    """Ratios per pair: `steps` and `blocks` by rank 0's clock, `processors` of all ranks; `step_s`, of a step that is not traced; `looks`
    per step.
    """
    from shardyard.workers.spec import Run

    run = Run(job="cost", train=train, checkpoints=folder / "checkpoints", cache=folder / "cache", device="cpu")
    ranks = spawn(_rank, run.train.layout.world_size, run.model_dump_json(), enough_s, patience_s=enough_s + PATIENCE_S)
    first, blocks = ranks[0], ranks[0]["blocks"]
    worked = [sum(block["worked"] for block in each) for each in zip(*(rank["blocks"] for rank in ranks), strict=True)]
    pairs = list(zip(blocks[0::2], blocks[1::2], strict=True))
    return {
        "processors": [traced / plain for traced, plain in zip(worked[0::2], worked[1::2], strict=True)],
        "steps": [sum(traced["steps"]) / sum(plain["steps"]) for traced, plain in pairs],
        "blocks": [traced["seconds"] / plain["seconds"] for traced, plain in pairs],
        "step_s": statistics.median(step for _, plain in pairs for step in plain["steps"]),
        "looks": first["looks"],
    }


def _rank(rank: int, world: int, port: int, orders: str, enough_s: float) -> dict[str, Any]:
    """Seconds of every block and of its steps; the even ones are traced."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build

    run = Run.model_validate_json(orders)
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    conductor = Conductor(enough_s)
    loop = assemble(built, conductor.hear, conductor.instruments)
    loop.run()
    return {"blocks": conductor.blocks, "looks": conductor.looks}


class Conductor:
    """Asked at each step's begin whether to end: orders a trace where a block of them begins."""

    def __init__(self, enough_s: float) -> None:
        from shardyard.workers.trainer.instruments import Instruments

        self.enough_s = enough_s
        self.blocks: list[dict[str, Any]] = []
        self.looks = 0
        self.instruments = Instruments(self.asked)
        self._steps: list[float] = []
        self._done, self._began = -WARM - 1, _now()

    def hear(self, kind: str, data: dict[str, Any]) -> None:
        """What the loop reports, as JSON, which is part of the cost."""
        json.dumps(data)
        if kind == "step":
            self._steps.append(data["step_s"])
        if kind == "trace":
            self.looks = len(data["spans"])

    def asked(self) -> Any:
        from shardyard.workers.messages.stop_request import StopRequest
        from shardyard.workers.messages.trace_request import Trace

        self._done += 1
        if self._done > 0 and self._done % BLOCK == 0:
            steps = self._steps[-BLOCK:][1 : 1 + TRACED]
            seconds, worked = (now - began for now, began in zip(_now(), self._began, strict=True))
            self.blocks.append({"seconds": seconds, "worked": worked, "steps": steps})
        if self._done >= 0 and self._done % BLOCK == 0:
            self._began = _now()
        if self._done >= 0 and self._done % (2 * BLOCK) == 0:  # it begins with the step after this one
            self.instruments.pending_trace.order(Trace(f"trace-{self._done}", TRACED))
        whole = self.blocks and len(self.blocks) % 2 == 0 and self._done % BLOCK == 1
        return (
            StopRequest.STOP
            if whole and sum(block["seconds"] for block in self.blocks) > self.enough_s
            else StopRequest.NO
        )


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    main()
