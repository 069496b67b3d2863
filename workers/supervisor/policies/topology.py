"""Chooses the GPU model, zones, rails and NVLink domains of a gang's bundles, and the order of ranks over nodes. Pure.

Rules that it keeps: all nodes run the image that the spec names; all GPUs are of one model unless it allows a mixture; the gang is in
one zone, rail and domain where it fits, else in as few as possible; if that needs no more of them, each cut is at the border of a group
of neighbouring ranks, such as a pipeline stage. A bundle is a tensor group, and on one node. Equal input gives equal output, in
O(n log n) of the nodes.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeVar

from ...messages.gang_spec import ANY_MODELS, GangSpec

Level = Literal["zone", "rail", "domain"]

#: Ray's label of each level, the outermost first. `ray.io/gpu-domain`: nodes that one NVLink switch connects. Nodes of one rail group
#: share their leaf switches.
LABELS: Final[dict[Level, str]] = {
    "zone": "ray.io/availability-zone",
    "rail": "shardyard.io/rail",
    "domain": "ray.io/gpu-domain",
}
#: Ray sets this label itself where it recognises the GPUs.
MODEL_LABEL: Final = "ray.io/accelerator-type"
#: Name of the image that a node's Ray worker runs. Nodes without it run the cluster's own.
IMAGE_LABEL: Final = "shardyard.io/image"

Natural = tuple[tuple[int, str], ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a node is, by its labels. Empty: it has no such label."""

    zone: str = ""
    rail: str = ""
    domain: str = ""

    @cached_property
    def order(self) -> tuple[Natural, ...]:
        """Sorts neighbours side by side; numbers in names count as numbers."""
        return natural(self.zone), natural(self.rail), natural(self.domain)


@dataclass(frozen=True)
class NodeRoom:
    """A node on which a gang may be placed. `bundles`: the tensor groups for which it has room, `rest`: the ranks beside those."""

    id: str
    bundles: int
    model: str = ""
    place: Place = field(default_factory=Place)
    image: str = ""
    rest: int = 0


@dataclass(frozen=True)
class Part:
    """`bundles`: the number of a gang's consecutive bundles that go to nodes with these labels."""

    bundles: int
    model: str = ""
    place: Place = field(default_factory=Place)


@dataclass(frozen=True)
class _Pile:
    """Nodes with a common label."""

    name: str
    nodes: Sequence[NodeRoom]
    room: int

    def fits(self, spec: GangSpec, count: int) -> bool:
        """Whether it has room for `count` tensor groups and beside them for the spares, each on any of its nodes."""
        rest = sum(node.rest for node in self.nodes)
        return self.room >= count and (self.room - count) * spec.tensor + rest >= spec.spares


def natural(name: str) -> Natural:
    """A key that sorts `rack-2` before `rack-10`."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name) if part)


def choose(nodes: Sequence[NodeRoom], spec: GangSpec) -> list[Part] | None:
    """The parts of the gang's tensor groups, neighbours side by side. None if the nodes have no room for them."""
    count = spec.world_size // spec.tensor
    units = [size // spec.tensor for size in spec.neighbours if spec.tensor < size < spec.world_size]
    nodes = [node for node in nodes if node.image == spec.image]
    if spec.within is not None:
        label = spec.within
        nodes = [node for node in nodes if getattr(node.place, label)]
    found = []
    for model in _piles(nodes, lambda node: _model(node, spec)):
        if model.fits(spec, count) and (not _asked(spec) or model.name.casefold() == spec.gpu.casefold()):
            parts = _Filler(units, spec, model.name).fill(model.nodes, count, tuple(LABELS))
            found += [] if parts is None else [(_zones(parts), len(parts), model.room, natural(model.name), parts)]
    return min(found, key=lambda one: one[:4])[4] if found else None


def _asked(spec: GangSpec) -> bool:
    """Whether the spec names one model."""
    return spec.device == "cuda" and spec.gpu not in ("", ANY_MODELS)


def _model(node: NodeRoom, spec: GangSpec) -> str:
    return node.model if spec.device == "cuda" and spec.gpu != ANY_MODELS else ""


def _zones(parts: Sequence[Part]) -> int:
    return len({part.place.zone for part in parts})


def _piles(nodes: Iterable[NodeRoom], key: Callable[[NodeRoom], str]) -> list[_Pile]:
    """The nodes by a label, in the order of its values."""
    found: dict[str, list[NodeRoom]] = defaultdict(list)
    for node in nodes:
        found[key(node)].append(node)
    return [_Pile(name, found[name], sum(node.bundles for node in found[name])) for name in sorted(found, key=natural)]


@dataclass(frozen=True)
class _Filler:
    """Fills nodes of one model. `units`: sizes of groups of neighbouring bundles that should not be cut, the largest first."""

    units: Sequence[int]
    spec: GangSpec
    model: str

    def fill(self, nodes: Sequence[NodeRoom], count: int, levels: tuple[Level, ...]) -> list[Part] | None:
        """Parts of `count` bundles, in the order of their places. None if they would be cut where they must not be."""
        if not levels:
            return [Part(count, self.model, nodes[0].place)]
        level, *inner = levels
        piles = _piles(nodes, lambda node: str(getattr(node.place, level)))
        able = [one for one in piles if one.room >= count and (level != self.spec.within or one.fits(self.spec, count))]
        whole = [(pile, self.fill(pile.nodes, count, tuple(inner))) for pile in able]
        fits = [(len(parts), pile.room, place, parts) for place, (pile, parts) in enumerate(whole) if parts is not None]
        if fits:
            return min(fits, key=lambda one: one[:3])[3]
        if self.spec.within in (level, *inner):
            return None
        parts = []
        for pile, share in self._shares(piles, count):
            parts += self.fill(pile.nodes, share, tuple(inner)) or []
        return parts

    def _shares(self, piles: Sequence[_Pile], count: int) -> list[tuple[_Pile, int]]:
        """How many bundles go to which pile: to as few piles as possible, in whole units where that needs no more piles."""
        least = len(_greedy(piles, count, 1))
        for unit in self.units:
            taken = _greedy(piles, count, unit)
            if len(taken) == least and sum(taken.values()) == count:
                break
        else:
            taken = _greedy(piles, count, 1)
        return [(pile, taken[place]) for place, pile in enumerate(piles) if place in taken]


def _greedy(piles: Sequence[_Pile], count: int, unit: int) -> dict[int, int]:
    """Pile → its share, in multiples of `unit`: the largest piles whole, and for the rest the smallest pile that has room."""
    room = {place: pile.room // unit * unit for place, pile in enumerate(piles) if pile.room >= unit}
    taken: dict[int, int] = {}
    order = sorted(room, key=lambda place: (-room[place], place))
    for number, place in enumerate(order):
        if room[place] < count:
            taken[place] = room[place]
            count -= room[place]
            continue
        last = min((other for other in order[number:] if room[other] >= count), key=lambda other: (room[other], other))
        taken[last] = count
        break
    return {place: share for place, share in taken.items() if share}


def selectors(parts: Sequence[Part] | None, nodes: Sequence[NodeRoom], spec: GangSpec) -> list[dict[str, str]]:
    """Ray's label selector for each tensor group. A label that all nodes share is left out, so that a repair may use new nodes."""
    count = spec.world_size // spec.tensor
    image = _image_selector(nodes, spec)
    if parts is None:
        return [image | ({MODEL_LABEL: spec.gpu} if _asked(spec) else {})] * count
    nodes = [node for node in nodes if node.image == spec.image]
    varied = {name: len({getattr(node.place, name) for node in nodes}) > 1 for name in LABELS}
    models = _asked(spec) or len({_model(node, spec) for node in nodes}) > 1
    found = []
    for part in parts:
        where = {LABELS[name]: getattr(part.place, name) for name in LABELS if varied[name] or spec.within == name}
        where |= {MODEL_LABEL: part.model} if models else {}
        found += [image | {label: value for label, value in where.items() if value}] * part.bundles
    return found


def _image_selector(nodes: Sequence[NodeRoom], spec: GangSpec) -> dict[str, str]:
    """Keeps the gang on nodes of its image, also when Ray moves a bundle after a node's death, perhaps to nodes that are away now."""
    if spec.image:
        return {IMAGE_LABEL: spec.image}
    others = sorted({node.image for node in nodes}.union(spec.other_images) - {""})
    return {IMAGE_LABEL: none_of(others)} if others else {}


def none_of(values: Iterable[str]) -> str:
    """Ray's condition that a label has none of these values; it also holds for nodes without the label.

    Without spaces, because Ray accepts them but compares them literally.
    """
    return f"!in({','.join(values)})"


def by_place(items: Iterable[T], node_of: Callable[[T], str | None], places: Mapping[str, Place]) -> list[T]:
    """The items, such as bundles, in the order of their nodes' places; those of one node side by side in their own order."""
    nowhere = Place()

    def key(item: T) -> tuple[tuple[Natural, ...], str]:
        node = node_of(item)
        return places.get(node or "", nowhere).order, str(node)

    return sorted(items, key=key)
