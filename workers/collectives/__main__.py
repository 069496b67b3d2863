"""Times the collectives of a job's process groups, on each rank: torchrun … -m shardyard.workers.collectives [--layout JSON]

Rank 0 prints the report: as one line of JSON with --json, else as a table. In a job of Shardyard the bandwidths are its metrics, too.
"""

import argparse
import json
import os
import sys

import torch
import torch.distributed as dist

from ...strategies.layout import Layout
from ...strategies.mesh import Mesh, make_mesh
from ..world import formed_by_torchrun
from .measure import groups_of, measured
from .report import Report, size_text, table

_SIZES = "65536,1048576,16777216"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m shardyard.workers.collectives", description=__doc__)
    parser.add_argument("--layout", type=json.loads, help="layout of a train spec; its axes are timed, too")
    parser.add_argument("--sizes", default=_SIZES, help="bytes, with commas between them")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    options = parser.parse_args(arguments)
    layout = None if options.layout is None else Layout.model_validate(options.layout)
    with formed_by_torchrun(_device(options.device)) as device:
        report = measured(groups_of(_mesh(layout, device)), [int(size) for size in options.sizes.split(",")], device)
        if dist.get_rank() == 0:
            _print(report, options.json)
    return 0


def _device(wanted: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


def _mesh(layout: Layout | None, device: torch.device) -> Mesh | None:
    return None if layout is None or layout.world_size == 1 else make_mesh(layout, device)


def _print(report: Report, as_json: bool) -> None:
    content = report.to_json()
    if as_json:
        sys.stdout.write(json.dumps(content) + "\n")
    else:
        rows = table(content)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + "\n")
        for finding in content["findings"]:
            sys.stdout.write(finding + "\n")
    if "SHARDYARD_JOB" in os.environ:
        logged = {
            f"busbw/{one.axis}/{one.collective}/{size_text(one.bytes)}": one.bus_bandwidth / 1e9
            for one in report.speeds
        }
        sys.stdout.write(json.dumps({"shardyard": logged, "step": 1}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without the destructors of torch's threads
