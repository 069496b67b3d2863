"""Training without Ray or the service: the same job, the same losses.

torchrun --nproc-per-node 4 -m shardyard.workers.local SPEC
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .spec import Run, TrainSpec
from .words import in_words


def main(arguments: list[str] | None = None) -> int:
    """Train the `train` part of a job spec (or a bare train spec); prints a line per step on rank 0."""
    parser = argparse.ArgumentParser(prog="torchrun … -m shardyard.workers.local", description=main.__doc__)
    parser.add_argument("spec", type=Path, help="job spec, YAML or JSON")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--out", type=Path, default=Path(".shardyard/local"), help="folder for checkpoints and the token cache"
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    options = parser.parse_args(arguments)
    document = yaml.safe_load(options.spec.read_text())
    train = TrainSpec.model_validate(document.get("train", document))
    name = document.get("name", options.spec.stem)

    from .ending import Ending
    from .groups import formed_by_torchrun
    from .loop import train_on

    device = _device(options.device)
    out: Path = options.out.resolve()
    checkpoints = train.checkpoints(str(out / "checkpoints"), name)
    run = Run(job=name, train=train, device=device, checkpoints=checkpoints, cache=out / "cache")
    with formed_by_torchrun(device) as torch_device:
        train_on(run, torch_device, _print_json if options.json else _print_event, lambda: Ending.NO)
    return 0


def _device(asked: str) -> Any:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def _print_json(kind: str, data: dict[str, Any]) -> None:
    if kind != "step" or "loss" in data:
        _print(json.dumps({"kind": kind, "data": data}))


def _print_event(kind: str, data: dict[str, Any]) -> None:
    line = in_words(kind, data)
    if line is not None:
        _print(line)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _leave(status: int) -> NoReturn:
    """Exit without destructors: threads of torch's that still run then abort a process now and then ("terminate called …")."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _leave(main())
