"""Training without Ray or the service: the same job, the same losses.

torchrun --nproc-per-node 4 -m shardyard.workers.local SPEC [--trace FIRST:STEPS]
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import core_yaml
from .chrome_trace import chrome_trace
from .messages.event_text import format_event
from .messages.trace_request import Trace
from .spec import Run, TrainSpec


def main(arguments: list[str] | None = None, work: Callable[[Run, Any, Any, Any], None] | None = None) -> int:
    """Train the `train` part of a job spec (or a bare train spec). Prints a line per step on rank 0."""
    # `work` is done with run, device, printer and instruments in the place of a training of the layout.
    parser = argparse.ArgumentParser(prog="torchrun … -m shardyard.workers.local", description=main.__doc__)
    parser.add_argument("spec", type=Path, help="job spec, YAML, or JSON by its suffix")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--out", type=Path, default=Path(".shardyard/local"), help="folder for checkpoints and the token cache"
    )
    parser.add_argument(
        "--trace",
        type=_traced,
        metavar="FIRST:STEPS",
        help="write what all ranks did in these steps, for ui.perfetto.dev",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    options = parser.parse_args(arguments)
    document = _read(options.spec)
    train = TrainSpec.model_validate(document.get("train", document))
    name = document.get("name", options.spec.stem)

    from .trainer.assemble import train_on
    from .trainer.determinism import compute_the_same_bits
    from .trainer.instruments import Instruments
    from .world import formed_by_torchrun

    device = _device(options.device)
    out: Path = options.out.resolve()
    checkpoints = train.checkpoints(str(out / "checkpoints"), name)
    run = Run(
        job=name, train=train, device=device, checkpoints=checkpoints, cache=out / "cache", resume=train.resume_from
    )
    if train.deterministic:
        compute_the_same_bits()
    instruments = Instruments()
    if options.trace:
        if options.trace[0] > train.steps:
            parser.error(f"--trace {options.trace[0]}: there are {train.steps} steps")
        instruments.pending_trace.order(Trace("local", options.trace[1]), first=options.trace[0])
    printer = EventPrinter(_print_json if options.json else _print_event)
    with formed_by_torchrun(device) as torch_device:
        (work or train_on)(run, torch_device, printer, instruments)
        if options.trace:
            _write_trace(printer.traced, out / f"{name}-trace.json")
    return 0


def _read(path: Path) -> Any:
    """A spec's document: JSON by its suffix, else YAML, as a submission reads both."""
    text = path.read_text(encoding="utf-8-sig")
    return json.loads(text) if path.suffix == ".json" else core_yaml.load(text)


class EventPrinter:
    """Prints a rank's events, and keeps its traces for the end."""

    def __init__(self, print_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._print_event = print_event
        self.traced: list[dict[str, Any]] = []

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "trace":
            self.traced.append(data)
        elif kind != "trace_finished":
            self._print_event(kind, data)


def _traced(text: str) -> tuple[int, int]:
    """Parse `FIRST:STEPS`. The first step cannot be traced, because the ranks agree on a trace in the step before it."""
    first, _, steps = text.partition(":")
    try:
        trace = (int(first), Trace("local", int(steps)).steps)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:STEPS, such as 10:3 ({error})") from None
    if trace[0] < 2:
        raise argparse.ArgumentTypeError("the first step cannot be traced, because it sets everything up: begin with 2")
    return trace


def _write_trace(mine: list[dict[str, Any]], path: Path) -> None:
    """Write all ranks' steps into one file, from the first rank. Collective."""
    import torch.distributed as dist

    everyone: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, everyone)
    if everyone is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(chrome_trace([event for events in everyone for event in events])))
        _print(f"traced {sorted({event['step'] for event in mine})}: {path}, for ui.perfetto.dev")


def _device(requested: str) -> Any:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if requested == "auto" else requested


def _print_json(kind: str, data: dict[str, Any]) -> None:
    if kind != "step" or "loss" in data:
        _print(json.dumps({"kind": kind, "data": data}))


def _print_event(kind: str, data: dict[str, Any]) -> None:
    line = format_event(kind, data)
    if line is not None:
        _print(line)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def leave(status: int) -> NoReturn:
    """Exit without destructors: torch's threads that still run at that time sometimes abort the process ("terminate called …")."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
