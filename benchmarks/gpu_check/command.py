"""The command line of `make gpu-check`. Sections run in processes of their own, so the first one imports no torch."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from .processes import NO_DEVICE, NoDevice, Orders, run_sections
from .report import Line, Report, format_line, markdown, to_json
from .sections import NAMES


def main(about: str, arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a line failed."""
    options = _options(about, arguments)
    if options.orders:
        return _work(Orders(**json.loads(options.orders)))
    if options.trainer:
        from .trainer import main as train

        return train(options.trainer)
    if options.write_dry_runs:
        from .sections.memory import write_dry_runs

        write_dry_runs()
        return 0
    return _check(options)


def _work(orders: Orders) -> int:
    import torch

    if orders.device == "cuda" and not torch.cuda.is_available():
        return NO_DEVICE
    from .worker import main as work

    return work(orders)


def _options(about: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, metavar="SECTION", default=NAMES, help=f"of {', '.join(NAMES)}"
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu-check"), help="folder of the two files")
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="time limit: checks that would begin later are skipped"
    )
    parser.add_argument("--sizes", choices=("full", "tiny"), help="default: full on CUDA, tiny on a CPU")
    parser.add_argument("--write-dry-runs", action="store_true", help="keep the peaks of dry runs, with a CPU's torch")
    for hidden in ("--orders", "--trainer"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _check(options: argparse.Namespace) -> int:
    began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    sizes = options.sizes or ("full" if options.device == "cuda" else "tiny")
    sections = [name for name in NAMES if name in options.only]
    with tempfile.TemporaryDirectory() as folder:
        try:
            machine, lines = run_sections(options.device, sizes, sections, Path(folder), options.seconds, _show)
        except NoDevice:
            sys.stdout.write("No CUDA device here: nothing was checked.\n")
            return 0
    if machine is None:
        sys.stdout.write("No process of the check could start; its error is above.\n")
        return 1
    report = Report(began, time.monotonic() - clock, machine, tuple(lines))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("gpu-check.json", to_json(report)), ("gpu-check.md", markdown(report))):
        (options.out / name).write_text(text)
    sys.stdout.write(f"{options.out}/gpu-check.json and gpu-check.md\n")
    return 0 if report.good else 1


def _show(line: Line) -> None:
    sys.stdout.write(format_line(line) + "\n")
    sys.stdout.flush()
