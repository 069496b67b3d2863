"""Dry runs of several ranks, each in a process of its own. Imports no torch."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import IO, Final

from ...strategies.layout import Layout, Refusal
from ..gpu_models import GpuModel
from ..messages import json_codec
from ..spec import TrainSpec
from .rendezvous import NoRendezvous, check_rendezvous
from .report import DryRun

#: Exit code of `python -m shardyard.workers.dry_run` where there can be no fake device; the reason is on its standard error.
NO_DEVICE: Final = 3
#: Python's arguments that start it.
PROGRAM: Final[tuple[str, ...]] = ("-P", "-m", "shardyard.workers.dry_run")
#: Bytes at the end of its standard error in which the last line is looked for.
_END: Final = 1 << 16


class DryRunFailed(RuntimeError):
    """A dry run did not end with a report. The text says why, and the remedy."""


class DryRunUnavailable(DryRunFailed):
    """There can be no dry run on this machine, or it takes too long."""


@dataclass(frozen=True)
class Request:
    """One rank's dry run. `vocab`: the tokenizer's; `whole`: nothing is extrapolated; `at_once`: in how many processes it may measure.

    `races`: fail where nothing orders two streams, or a stream and the host, that use the same memory.
    """

    train: TrainSpec
    vocab: int
    gpu: GpuModel
    rank: int = 0
    whole: bool = False
    at_once: int = 1
    races: bool = False

    def line(self) -> str:
        train = self.train.model_dump(mode="json", by_alias=True, exclude_unset=True)
        run = {"gpu": self.gpu.name, "rank": self.rank, "whole": self.whole, "at_once": self.at_once}
        run["races"] = self.races
        return json.dumps({"train": train, "vocab": self.vocab, **run}) + "\n"


def representatives(layout: Layout) -> tuple[int, ...]:
    """One rank of each place in the pipeline: the others of a place hold and do the same, give or take a row that does not divide."""
    return tuple(range(0, layout.world_size, layout.world_size // layout.pipeline))


def dry_runs(requests: Sequence[Request], timeout_s: float = 1800) -> list[DryRun]:
    """The reports, in order, from as many processes as there are cores. Raises `Refusal` and `DryRunFailed`."""
    cores = os.cpu_count() or 1
    several = min(len(requests), cores)
    requests = [replace(request, at_once=cores // several) for request in requests]
    with ThreadPoolExecutor(max_workers=several) as pool:
        shares = list(pool.map(lambda first: _answers(requests[first::several], timeout_s), range(several)))
    return [shares[number % several][number // several] for number in range(len(requests))]


def _answers(requests: Sequence[Request], timeout_s: float) -> list[DryRun]:
    """One process's reports, one request after the other."""
    lines = "".join(request.line() for request in requests)
    try:
        # Its errors go to no pipe, of which the end is waited for: a module may leave processes behind.
        with tempfile.TemporaryFile() as errors:
            done = subprocess.run(
                [sys.executable, *PROGRAM],
                input=lines.encode(),
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=timeout_s,
                check=False,
            )
            last = _last_line(errors) or f"it exited with {done.returncode}"
    except subprocess.TimeoutExpired:
        raise DryRunUnavailable(f"The dry run took longer than {timeout_s:.0f} s.") from None
    except OSError as error:
        raise DryRunUnavailable(f"The dry run cannot be started: {error.strerror}.") from None
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        if "refusal" in answer:
            raise Refusal(**answer["refusal"])
    if done.returncode or len(answers) < len(requests):
        if done.returncode == NO_DEVICE:
            raise DryRunUnavailable(last)
        ranks = ", ".join(str(request.rank) for request in requests[len(answers) :][:1])
        raise DryRunFailed(f"The dry run of rank {ranks} failed: {last}")
    return [json_codec.read(DryRun, answer["report"]) for answer in answers]


def _last_line(file: IO[bytes]) -> str:
    """The last line of a file, read by its place: processes that share its offset may write meanwhile."""
    size = os.fstat(file.fileno()).st_size
    lines = os.pread(file.fileno(), _END, max(0, size - _END)).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def disagreements(reports: Mapping[int, DryRun]) -> list[str]:
    """What would hang: groups whose ranks start different collectives, and what never meets, among the ranks that were run."""
    found = []
    digests: dict[str, dict[str, int]] = {}
    for rank, report in reports.items():
        for group, digest in report.sequence.items():
            digests.setdefault(group, {}).setdefault(digest, rank)
    for group, ranks in digests.items():
        if len(ranks) > 1:
            first, second = sorted(ranks.values())[:2]
            found.append(f"Ranks {first} and {second} start different collectives in the group of ranks {group}.")
    messages = {
        rank: [message for message in report.messages if message.other in reports] for rank, report in reports.items()
    }
    try:
        check_rendezvous(messages, {rank: report.meetings for rank, report in reports.items()})
    except NoRendezvous as error:
        found.append(str(error))
    return found
