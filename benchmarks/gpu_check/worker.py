"""The process that runs sections: it forms a world of one on the device and writes what it finds for its parent."""

import importlib
import os
import platform
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from shardyard.version import __version__
from shardyard.workers.world import formed_by_torchrun

from .checks import Check, Place, lines_of
from .processes import Orders, append
from .report import Machine
from .sizes import FULL, TINY

DRIVER = Path("/proc/driver/nvidia/version")


def main(orders: Orders) -> int:
    """Run the sections of `orders`, whose device is there."""
    out, deadline = Path(orders.out), time.monotonic() + orders.seconds
    append(out, {"machine": asdict(_machine(orders.device))})
    with formed_by_torchrun(orders.device) as device:
        sizes = FULL if orders.sizes == "full" else TINY
        for section in orders.sections:
            folder = Path(orders.folder, section)
            folder.mkdir(exist_ok=True)
            append(out, {"begin": section})
            _run(section, Place(device, sizes, folder, Path(orders.folder, "cache")), out, deadline)
            append(out, {"end": section})
    return 0


def _run(section: str, at: Place, out: Path, deadline: float) -> None:
    module: Any = importlib.import_module(f".sections.{section}", __package__)
    checks: list[Check] = module.checks(at)
    for line in lines_of(section, checks, deadline):
        append(out, {"line": asdict(line)})


def _machine(device: str) -> Machine:
    facts: dict[str, Any] = {}
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        facts = {
            "memory_bytes": about.total_memory,
            "capability": f"{about.major}.{about.minor}",
            "driver": _driver(),
            "cuda": torch.version.cuda or torch.version.hip,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }
    name = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
    cores = len(os.sched_getaffinity(0))
    return Machine(name, str(torch.__version__), platform.python_version(), __version__, cores, **facts)


def _driver() -> str | None:
    """The version of NVIDIA's kernel module; None if it cannot be read, as in some containers."""
    try:
        found = re.search(r"Module\s+(?:for \S+\s+)?([\d.]+)", DRIVER.read_text())
    except OSError:
        return None
    return found and found[1]
