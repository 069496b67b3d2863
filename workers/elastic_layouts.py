"""The layouts of an elastic job: each degree of data parallelism in its range on which it can run, the largest first.

The global batch is the same in all of them, and so is every loss. Imports no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..strategies.batch import Batch
from ..strategies.layout import ModelFacts, Refusal
from .spec import TrainSpec


@dataclass(frozen=True)
class ElasticLayout:
    """One degree of data parallelism, or number of ranks of a command, and what follows from it. `layout` and `batch` are text."""

    data: int
    world_size: int
    layout: str
    batch: str


def elastic_layouts(train: TrainSpec, facts: ModelFacts) -> tuple[ElasticLayout, ...]:
    """The layouts of an elastic job; empty for any other job. Raises `Refusal` for a range of which at most one degree can run."""
    allowed = train.layout.elastic
    if allowed is None or allowed.min == allowed.max:
        return ()
    found = tuple(_legal(train, facts, range(allowed.max, allowed.min - 1, -1)))
    if len(found) > 1:
        return found
    below = next(_legal(train, facts, range(allowed.min - 1, 0, -1)), None)
    fewer = "" if below is None else f"Use {below.data} or less as min. "
    raise Refusal(
        "layout.data",
        f"of {allowed} replicas only {' and '.join(str(form.data) for form in found)} can run: the others do not fit global_batch "
        f"{train.global_batch}, or layout.micro_batch, zero, shard or expert.",
        f"{fewer}Otherwise set layout.data to a number.",
    )


def _legal(train: TrainSpec, facts: ModelFacts, degrees: range) -> Iterator[ElasticLayout]:
    for data in degrees:
        if train.global_batch % data:
            continue
        changed = train.model_copy(update={"layout": train.layout.model_copy(update={"data": data})})
        try:
            batch: Batch = changed.check_facts(facts)
        except Refusal:
            continue
        yield ElasticLayout(data, changed.layout.world_size, str(changed.layout), str(batch))
