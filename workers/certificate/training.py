"""One of the two trainings of a certificate: its ranks on this machine over gloo, and what they reported and saved."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..program.captured_run import lines_of_rank_0
from ..spec import TrainSpec

Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """What rank 0 reported, and the folder of the final checkpoint. `losses` and `norms`: of each step."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    validation: tuple[float, ...]
    plan: Numbers
    probe: Numbers = field(default_factory=dict)
    checkpoint: str = ""


def trained(
    train: TrainSpec, name: str, folder: Path, *, reference: bool = False, env: Mapping[str, str] | None = None
) -> Training:
    """Train on as many processes as the layout has ranks; call it on the main thread. Trainings in one `folder` share their tokens.

    `reference`: in one process that does what the layout does besides training (`reference.py`). `env`: variables of the job. Raises
    RanksFailed, and OSError if no process can be started.
    """
    spec = folder / f"{name}.json"
    spec.write_text(json.dumps({"name": name, "train": train.model_dump(mode="json", by_alias=True)}))
    arguments = [str(spec), "--device", "cpu", "--json", "--out", str(folder)]
    module, ranks = ("workers.certificate.reference", 1) if reference else ("workers.local", train.layout.world_size)
    events = _events(lines_of_rank_0(module, arguments, ranks, env=env))
    return read(events, str(folder / "checkpoints" / name))


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Numbers]]:
    """The events that are printed as JSON lines."""
    for line in lines:
        if line.startswith('{"kind": '):
            event = json.loads(line)
            yield event["kind"], event["data"]


def read(events: Iterable[tuple[str, Numbers]], checkpoints: str) -> Training:
    """What rank 0's events say; `checkpoints`: the folder below which the training has saved its end."""
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
