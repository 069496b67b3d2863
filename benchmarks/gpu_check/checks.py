"""A check returns lines. One that raises is a failed line with its error, and the others go on.

What cannot run here is skipped with its reason: a check raises `Skip`, or Shardyard refuses its spec.
"""

import gc
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from shardyard.strategies import torch_version
from shardyard.strategies.layout import Refusal
from shardyard.workers.spec import Run, TrainSpec

from .report import Line, failed, skipped
from .sizes import Sizes


class Skip(Exception):
    """The check cannot run here; the text is the reason."""


@dataclass(frozen=True)
class Check:
    """`run` measures, and yields its lines as they come."""

    name: str
    run: Callable[[], Iterable[Line]]


@dataclass(frozen=True)
class Place:
    """Where a section runs: its device, its sizes and its folder, whose `cache` all sections share."""

    device: torch.device
    sizes: Sizes
    folder: Path
    cache: Path

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def needs_cuda(self, what: str) -> None:
        """Raises `Skip` on a CPU."""
        if not self.cuda:
            raise Skip(f"a CPU has no {what}")

    def needs_tried_torch(self, what: str) -> None:
        """Raises `Skip` on a version of torch whose private functions were not tried."""
        if not torch_version.tried():
            versions = ", ".join(f"{version}x" for version in torch_version.TRIED)
            raise Skip(f"{what} needs torch {versions}, whose private functions were tried")

    def run(self, spec: Mapping[str, Any], job: str = "gpu-check", resume: str | None = None) -> Run:
        """The run of a train spec. Raises `Refusal` for what its model cannot do."""
        train = TrainSpec.model_validate(spec)
        train.check()
        kind: Any = self.device.type
        folder = self.folder / "checkpoints" / job
        return Run(job=job, train=train, device=kind, checkpoints=str(folder), cache=self.cache, resume=resume)

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)


def lines_of(section: str, checks: Iterable[Check], deadline: float) -> Iterator[Line]:
    """The lines of a section. Checks that would begin after `deadline` (`time.monotonic`) are skipped."""
    for check in checks:
        if time.monotonic() >= deadline:
            yield replace(skipped(check.name, "the time limit is reached (--seconds)"), section=section)
            continue
        for line in guarded(check):
            yield replace(line, section=section)


def guarded(check: Check) -> Iterator[Line]:
    """The lines of a check, and one more if it raised."""
    try:
        yield from check.run()
    except Skip as reason:
        yield skipped(check.name, str(reason))
    except Refusal as refusal:
        yield skipped(check.name, str(refusal))
    except Exception as error:
        yield failed(check.name, _format_error(error))
    finally:
        gc.collect()  # a model of torch's FSDP2 is a cycle
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _format_error(error: Exception) -> str:
    """Type, first line, and the line of code that raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text} ({Path(last.filename).name}:{last.lineno})"
