"""Finds the smallest change of a spec with which it fits: single changes first, in the order of what they cost, then several together.

The order: recompute, a smaller micro-batch, a higher ZeRO stage, the optimizer's state on the host, or what is there on the device, other
degrees of tensor and pipeline on as many ranks, more ranks, and where host memory is short state on a disk. The global batch stays the
same, and so does every loss. Each candidate passes the spec's own checks, and an elastic job keeps its smallest layout. Imports no torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from ..strategies.cost.node_room import Verdict
from ..strategies.layout import Layout, ModelFacts, Refusal, divisors, legal_sizes
from ..strategies.memory_options import FP8_STEP, Offload, Recompute
from .elastic_layouts import elastic_layouts
from .spec import TrainSpec

#: A field of the train spec, dotted, and its new value.
Edit = tuple[str, Any]
#: Whether a checked spec fits; None: it cannot run on these devices, whatever it needs.
Judge = Callable[[TrainSpec], Verdict | None]

#: The largest tensor degree that is offered: tensor groups belong on one machine.
_MOST_TENSOR: Final = 8
#: More ranks than this many times as many are not offered.
_MOST_TIMES: Final = 4096
#: Number of candidates after which no other degrees are tried: each takes milliseconds of the API server's CPU time.
_MOST_JUDGED: Final = 2000
_RECOMPUTES: Final = ("none", "selective", "full")


@dataclass(frozen=True)
class Change:
    """Edits of a spec, the spec with them, and whether it fits."""

    edits: tuple[Edit, ...]
    train: TrainSpec
    verdict: Verdict

    @property
    def fits(self) -> bool:
        return self.verdict.fits is True

    def __str__(self) -> str:
        return ", ".join(f"{field}: {_text(value)}" for field, value in self.edits)


def smallest_change(train: TrainSpec, facts: ModelFacts, judge: Judge, most_ranks: int) -> Change | None:
    """The first change that fits on `most_ranks` ranks; if none does, the one that is nearest to it. None if nothing can be changed."""
    search = _Search(train, facts, judge, most_ranks)
    return search.found()


def few_changes(train: TrainSpec, facts: ModelFacts) -> Iterator[Change]:
    """Changes on the same degrees that the spec's own checks allow, for a judge that takes seconds: single ones, then one of every knob.

    Their verdict is that nothing is known.
    """
    together = _joined(*(_last_allowed(train, facts, options) for options in _options(train, train.layout)))
    for edits in dict.fromkeys((*_singles(train), together)):
        if edits and (changed := _allowed(train, facts, edits)) is not None:
            yield Change(edits, changed, Verdict(None, 0, 0))


class _Search:
    """Tries candidates in order and remembers which of them is nearest to what there is."""

    def __init__(self, train: TrainSpec, facts: ModelFacts, judge: Judge, most_ranks: int) -> None:
        self._train, self._facts, self._judge, self._most_ranks = train, facts, judge, most_ranks
        self._judged, self._host_is_short = 0, False
        self._closest: Change | None = None

    def found(self) -> Change | None:
        for edits in _singles(self._train):
            if (change := self._tried(edits)) is not None and change.fits:
                return change
        for degrees in self._degrees():
            if self._judged >= _MOST_JUDGED:
                break
            if (change := self._on(degrees)) is not None:
                return change
        disk = _to_disk(self._train.offload) if self._host_is_short else ()
        return (self._on((), [disk]) if disk else None) or self._closest

    def _tried(self, edits: tuple[Edit, ...]) -> Change | None:
        """The change, if the spec's own checks allow it."""
        train = _allowed(self._train, self._facts, edits)
        self._judged += 1
        verdict = None if train is None else self._judge(train)
        if train is None or verdict is None:
            return None
        change = Change(edits, train, verdict)
        self._host_is_short = self._host_is_short or verdict.host.share > 1
        if self._closest is None or _nearness(verdict) < _nearness(self._closest.verdict):
            self._closest = change
        return change

    def _on(self, degrees: tuple[Edit, ...], offloads: list[tuple[Edit, ...]] | None = None) -> Change | None:
        """The smallest change with these degrees that fits: none is looked for if even the most frugal one does not.

        `offloads`: what is tried of offload; None: all that keeps state out of disks.
        """
        try:
            *options, more = _options(self._train, applied(self._train, degrees).layout)
        except ValueError:
            return None
        options.append(offloads or [*more, *_less_offload(self._train.offload)])
        most = options[0][-1], options[1][-1]
        frugal = [
            self._tried(_joined(degrees, *most, zero, offload)) for zero, offload in product(options[2], options[3])
        ]
        if not any(change is not None and change.fits for change in frugal):
            return None
        choices = sorted(
            product(*(range(len(option)) for option in options)), key=lambda n: (sum(map(bool, n)), n[::-1])
        )
        for numbers in choices:
            edits = _joined(degrees, *(option[number] for option, number in zip(options, numbers, strict=True)))
            if edits and (change := self._tried(edits)) is not None and change.fits:
                return change
        return None

    def _degrees(self) -> Iterator[tuple[Edit, ...]]:
        yield ()
        yield from self._splits()
        servers, times = self._train.layout.servers, 2
        workers = self._train.layout.world_size - servers
        while times <= _MOST_TIMES and workers * times + servers <= self._most_ranks:
            yield from self._splits(times)
            times *= 2

    def _splits(self, times: int = 1) -> Iterator[tuple[Edit, ...]]:
        """Other degrees on `times` as many ranks: no tensor or pipeline degree is smaller than now."""
        layout = self._train.layout
        if layout.elastic is not None:
            return
        ranks = (layout.world_size - layout.servers) * times // layout.context
        tensors = [t for t in divisors(ranks) if layout.tensor <= t <= max(layout.tensor, _MOST_TENSOR)]
        found = [(t, p) for t in tensors for p in divisors(ranks // t) if p >= layout.pipeline]
        for t, p in sorted(found, key=lambda one: (one[1], one[0])):
            edits = self._degree_edits(t, p, ranks // t // p)
            if edits:
                yield edits

    def _degree_edits(self, tensor: int, pipeline: int, data: int) -> tuple[Edit, ...]:
        layout = self._train.layout
        wanted = {"data": data, "tensor": tensor, "pipeline": pipeline}
        if data * layout.context * layout.division.copies == 1 and layout.zero:
            wanted["zero"] = 0
        return tuple((f"layout.{name}", value) for name, value in wanted.items() if getattr(layout, name) != value)


def _singles(train: TrainSpec) -> Iterator[tuple[Edit, ...]]:
    for options in _options(train, train.layout):
        yield from options[1:]
    yield from _less_offload(train.offload)


def _allowed(train: TrainSpec, facts: ModelFacts, edits: tuple[Edit, ...]) -> TrainSpec | None:
    """The spec with `edits`, if its own checks allow it, and an elastic job keeps the smallest of its layouts."""
    try:
        changed = applied(train, edits)
        changed.check_compiled(facts)
        changed.check_facts(facts)
        if _least(changed, facts) > _least(train, facts):
            return None
    except (Refusal, ValueError):
        return None
    return changed


def _least(train: TrainSpec, facts: ModelFacts) -> int:
    """The smallest degree of an elastic job; 0 for any other job. Raises `Refusal` as `elastic_layouts` does."""
    return min((layout.data for layout in elastic_layouts(train, facts)), default=0)


def _last_allowed(train: TrainSpec, facts: ModelFacts, options: Sequence[tuple[Edit, ...]]) -> tuple[Edit, ...]:
    """The most frugal choice that is allowed by itself; at worst the first, the present one."""
    return next(edits for edits in reversed(options) if not edits or _allowed(train, facts, edits) is not None)


def _options(train: TrainSpec, layout: Layout) -> tuple[list[tuple[Edit, ...]], ...]:
    """For each knob its choices, the present one (no edit) first and the most frugal last."""
    mode, offload = train.recompute.mode, train.offload
    replicas = layout.data * layout.context * layout.division.copies
    stages = range(layout.zero + 1, 4) if replicas > 1 else range(0)
    recompute = [(("recompute", word),) for word in _RECOMPUTES[_RECOMPUTES.index(mode) + 1 :]]
    if train.recompute.every > 1:
        recompute.insert(0, (("recompute", mode),))
    here = () if offload.parameters or offload.optimizer == 1 else ((("offload.optimizer", 1),),)
    return (
        [(), *recompute],
        [(), *((("layout.micro_batch", size),) for size in _smaller(train, layout))],
        [(), *((("layout.zero", stage),) for stage in stages)],
        [(), *here],
    )


def _less_offload(offload: Offload) -> list[tuple[Edit, ...]]:
    """Choices with less in host memory than now."""
    found: list[tuple[Edit, ...]] = []
    if offload.activations:
        found.append((("offload.activations", False),))
    if offload.to == "host" and offload.parameters:
        found.append((("offload.parameters", False), ("offload.optimizer", 1)))
    if offload.to == "host" and (offload.parameters or offload.optimizer):
        found.append((("offload.parameters", False),) if offload.parameters else (("offload.optimizer", 0),))
    return found


def _to_disk(offload: Offload) -> tuple[Edit, ...]:
    """What keeps the optimizer's state, or what else is offloaded, on a disk; empty if it is there."""
    if offload.to == "disk":
        return ()
    here = () if offload.parameters or offload.optimizer else (("offload.optimizer", 1),)
    return (*here, ("offload.to", "disk"))


def _nearness(verdict: Verdict) -> tuple[float, int]:
    """Less is nearer to what there is."""
    return verdict.share, verdict.needed


def _smaller(train: TrainSpec, layout: Layout) -> list[int]:
    """Smaller micro-batches, the largest first, that the schedule, the rows of a grid and fp8 can run."""
    try:
        present = layout.batch(train.global_batch).micro_batch
    except Refusal:  # as the degrees are, of another size
        present = layout.micro_batch or 1
    step = FP8_STEP if train.precision.compute == "fp8" else 1
    legal = legal_sizes(layout, train.global_batch // layout.data)
    return [size for size in reversed(legal) if size < present and size * train.data.seq_len % step == 0]


def applied(train: TrainSpec, edits: tuple[Edit, ...]) -> TrainSpec:
    """The spec with `edits`. Raises ValueError (pydantic) for a layout that cannot be."""
    layout = {field.removeprefix("layout."): value for field, value in edits if field.startswith("layout.")}
    other = dict(edit for edit in edits if not edit[0].startswith("layout."))
    offload = {field.removeprefix("offload."): value for field, value in other.items() if field.startswith("offload.")}
    update: dict[str, Any] = {"layout": train.layout.with_(**layout)} if layout else {}
    if "recompute" in other:
        update["recompute"] = Recompute(mode=other["recompute"])
    if offload:
        update["offload"] = Offload.model_validate({**train.offload.model_dump(), **offload})
    return train.model_copy(update=update)


def _joined(*parts: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """All edits; of two of one field the later."""
    return tuple(dict(edit for part in parts for edit in part).items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
