"""Measures what ranks reach on this machine: a small step in one process, and the collectives of several."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from ....workers.advisor.known_hardware import Measured, link_of
from ....workers.host_memory import total_memory
from ....workers.program.captured_run import RanksFailed, lines_of_rank_0
from ....workers.spec import TrainSpec
from ...errors import InvalidParameter
from .collectives import timed_here
from .local_run import gpus_here

#: The most ranks whose collectives are timed on CPUs, which share cores.
_MOST_RANKS: Final = 8
#: Bytes of the two sizes that are timed: one for the latency, one for the bandwidth.
_SIZES: Final = "4096,16777216"


def gpu_here() -> str | None:
    """The name of this machine's first GPU, as its driver reports it; None: its ranks compute on CPUs."""
    return torch.cuda.get_device_name(0) if torch.cuda.device_count() else None


def host_memory_here(ranks: int) -> int | None:
    """Bytes of this machine's memory, if it has GPUs for as many ranks as a node; None: it is no such node."""
    return total_memory() or None if torch.cuda.device_count() >= ranks else None


def measured_here(train: TrainSpec, vocab: int, world: int) -> Measured:
    """A step of a model of these widths on one device, and the link between as many of `world` ranks as this machine has devices for.

    Raises InvalidParameter.
    """
    ranks = min(world, torch.cuda.device_count() or _MOST_RANKS)
    found = _timed_step(train, vocab)
    if ranks == 1:
        return found
    return replace(found, intra=link_of(timed_here(["--sizes", _SIZES], ranks)))


def _timed_step(train: TrainSpec, vocab: int) -> Measured:
    gpus = gpus_here("auto", 1)
    device = "cpu" if gpus is None else "cuda"
    with tempfile.TemporaryDirectory(prefix="shardyard-advise-") as folder:
        path = Path(folder) / "train.json"
        path.write_text(json.dumps(train.model_dump(mode="json", by_alias=True, exclude_unset=True)))
        arguments = [str(path), "--vocab", str(vocab), "--device", device]
        try:
            lines = list(lines_of_rank_0("workers.advisor", arguments, 1, gpus))
        except RanksFailed as error:
            message = (
                f"A step could not be timed here: the process ended with status {error.status}: {error.cause[:500]}"
            )
            raise InvalidParameter(message, field="--measure", remedy="Leave --measure out.") from None
    return Measured(**json.loads(next(line for line in lines if line.startswith("{"))))
