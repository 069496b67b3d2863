"""One of the two trainings of a certificate: its ranks on this machine over gloo, and what they reported and saved."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from ..forkserver.client import ONE_THREAD
from ..program.local_ranks import LocalRun, run_locally
from ..program.program import Program
from ..program.rank_output import RankOutput
from ..spec import TrainSpec

#: Of what failed ranks printed, the last characters that an error quotes.
_QUOTED: Final = 2000
_OF_RANK_0: Final = b"[rank 0] "
#: That of `RankOutput`, and that of torch before a traceback.
_NAMES: Final = re.compile(r"^(\[rank \d+\] )?(\[rank\d+\]: ?)?")

Numbers = Mapping[str, Any]


class TrainingFailed(Exception):
    """A rank failed. `status`: its exit status; above 128, 128 + the signal that ended it or this process."""

    def __init__(self, status: int, printed: str) -> None:
        super().__init__(printed)
        self.status = status

    @property
    def cause(self) -> str:
        """The last line that a rank printed itself, without the rank's names before it."""
        lines = [_NAMES.sub("", line) for line in str(self).splitlines()]
        of_ranks = [line for line in lines if line.strip() and not line.startswith("shardyard: ")]
        return of_ranks[-1] if of_ranks else "it printed nothing"


@dataclass(frozen=True)
class Training:
    """What rank 0 reported, and the folder of the final checkpoint. `loss` and `norm`: of each step."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    validation: tuple[float, ...]
    plan: Numbers
    probe: Numbers = field(default_factory=dict)
    checkpoint: str = ""


def trained(train: TrainSpec, name: str, folder: Path) -> Training:
    """Train on as many processes as the layout has ranks; call it on the main thread.

    Raises TrainingFailed, and OSError if no process can be started.
    """
    spec, out = folder / f"{name}.json", folder / name
    spec.write_text(json.dumps({"name": name, "train": train.model_dump(mode="json", by_alias=True)}))
    command = (sys.executable, "-m", f"{__package__.partition('.')[0]}.workers.local", str(spec))
    program = Program(name, (*command, "--device", "cpu", "--json", "--out", str(out)))
    ranks = train.layout.world_size
    env = {**os.environ, **ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        output = RankOutput(ranks, {"stdout": printed.fileno(), "stderr": errors.fileno()})
        status = run_locally(LocalRun(program, ranks, Path.cwd(), env, piped=True), output)
        if status:
            raise TrainingFailed(status, _end_of(errors))
        return _read(_events(printed), str(out / "checkpoints" / name))


def _end_of(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _QUOTED))
    return errors.read().decode(errors="replace").strip()


def _events(printed: IO[bytes]) -> Iterator[tuple[str, Numbers]]:
    """The events that rank 0 printed as JSON lines."""
    printed.seek(0)
    for line in printed:
        text = line.removeprefix(_OF_RANK_0)
        if text.startswith(b'{"kind": '):
            event = json.loads(text)
            yield event["kind"], event["data"]


def _read(events: Iterator[tuple[str, Numbers]], checkpoints: str) -> Training:
    found: dict[str, list[Numbers]] = {}
    for kind, data in events:
        found.setdefault(kind, []).append(data)
    steps = found.get("step", [])
    return Training(
        losses=tuple(float(one["loss"]) for one in steps),
        norms=tuple(float(one["grad_norm"]) for one in steps if one.get("grad_norm") is not None),
        validation=tuple(float(one["loss"]) for one in found.get("eval", [])),
        plan=found.get("plan", [{}])[-1],
        probe=found.get("probe", [{}])[0],
        checkpoint=f"{checkpoints}/step-{steps[-1]['step']:08d}" if steps else "",
    )
