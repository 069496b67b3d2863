"""A smaller spec with the same strategies: each degree that is above one stays above one, and the model has as many kinds of parts.

A grid of tensor ranks stays a grid, and a cube a cube; several parameter servers stay several.

Candidates are tried from the smallest, one number after the other, and each passes the spec's own checks. Imports no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from ...strategies.context_axes import windows
from ...strategies.layout import Layout, Refusal, divisors
from ...strategies.tensor_shape import TensorShape
from ...strategies.zero_plus_plus import ZeroPlusPlus
from ..model_spec import MIXTURE, ModelSpec
from ..models.presets import Architecture
from ..spec import TrainSpec

#: Largest training that is run as it is: ranks, parameters, and tokens of a step.
MOST_RANKS: Final = 16
MOST_PARAMETERS: Final = 10_000_000
MOST_TOKENS: Final = 65_536

_DEGREES: Final = ("data", "tensor", "context", "pipeline", "expert", "shard", "ulysses", "virtual", "ring_window")
#: Of these, those whose ranks fall into groups, which may fall into groups again: of eight, each has two.
_GROUPED: Final = ("data", "context")
#: The size of a smaller model's heads, and its feed-forward's width in widths of the model, unless the given one has less.
_HEAD: Final = 8
_HIDDEN: Final = 4
_SEQUENCES: Final = (32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Shrunk:
    """A spec that is small enough, and what was changed for that, such as `layers: 32 → 2`."""

    train: TrainSpec
    changes: tuple[str, ...] = ()


def shrunk(train: TrainSpec, arch: Architecture | None) -> Shrunk:
    """The spec with fewer ranks, a smaller model, shorter and fewer sequences, each where there is too much.

    Raises `Refusal` for a model that has no smaller one.
    """
    search = _Search(train)
    if train.layout.world_size > MOST_RANKS:
        search.take_layout()
    if arch is not None and arch.parameters > MOST_PARAMETERS:
        search.take_model(arch)
    if _tokens(search.train) > MOST_TOKENS:
        search.take_length()
    if _tokens(search.train) > MOST_TOKENS:
        search.take_batch()
    return Shrunk(search.train, tuple(search.changes))


def _tokens(train: TrainSpec) -> int:
    return train.global_batch * train.data.tokens_per_sample


class _Search:
    """The spec so far, each change of which has passed its checks."""

    def __init__(self, train: TrainSpec) -> None:
        self.train, self.changes = train, list[str]()

    def take_layout(self) -> None:
        """The fewest ranks on which all axes of the layout are left."""
        before = self.train
        for layout in _layouts(before.layout):
            for batch in (before.global_batch, *_batches(before, layout)):
                candidate = before.model_copy(update={"layout": layout, "global_batch": batch})
                if self._takes(candidate):
                    self._note("layout", before.layout, layout)
                    self._note("global_batch", before.global_batch, batch)
                    return

    def take_length(self) -> None:
        """The shortest sequences that the layout can divide."""
        before = self.train.data
        if before.is_own:  # its samples have the size that they have
            return
        for length in _lengths(self.train.layout):
            data = before.model_copy(update={"seq_len": length})
            if length < before.seq_len and self._takes(self.train.model_copy(update={"data": data})):
                self._note("data.seq_len", before.seq_len, length)
                return

    def take_batch(self) -> None:
        """The fewest sequences with which the layout can run."""
        before = self.train.global_batch
        for batch in _batches(self.train, self.train.layout):
            if self._takes(self.train.model_copy(update={"global_batch": batch})):
                self._note("global_batch", before, batch)
                return

    def take_model(self, arch: Architecture) -> None:
        """A decoder of the same kind, with fewer and narrower blocks."""
        missing = [name for name in ("qkv_bias", "window") if getattr(arch, name)]
        if missing:
            raise Refusal(
                "model",
                f"a model with {', '.join(missing)} has no smaller one that a spec can name.",
                "Run it as it is, with --whole, on a machine with room for it.",
            )
        before = self.train
        for numbers in _models(arch):
            model = ModelSpec.model_validate(_kept(before.model, arch) | numbers)
            if self._takes(before.model_copy(update={"model": model})):
                for name, number in numbers.items():
                    self._note(f"model.{name}", getattr(arch, name), number)
                self._note_head(arch)
                return

    def _note_head(self, before: Architecture) -> None:
        """Note another size of heads, where it does not follow from width and number of heads."""
        after = self.train.architecture(before.vocab)
        if after is not None and after.head_dim != before.head_dim:
            self._note("size of a head", before.head_size, after.head_size)

    def _takes(self, candidate: TrainSpec) -> bool:
        """Whether the candidate can run; it is the spec then."""
        try:
            candidate.check()
        except (Refusal, ValueError):
            return False
        self.train = candidate
        return True

    def _note(self, name: str, before: object, after: object) -> None:
        if str(before) != str(after):
            self.changes.append(f"{name}: {before} → {after}")


def _layouts(layout: Layout) -> Iterator[Layout]:
    """Layouts with the same axes, the fewest ranks first; at last the layout itself."""
    choices = [_fewer(getattr(layout, name) or 1, 8 if name in _GROUPED else 4) for name in _DEGREES]
    if layout.tensor_shape is not None:
        choices[_DEGREES.index("tensor")] = [layout.tensor]
    whole = layout.model_copy(update={"elastic": None, "pipeline_blocks": None})
    found = []
    for numbers, ranks in product(product(*choices), _shapes_and_servers(layout)):
        degrees: dict[str, Any] = dict(zip(_DEGREES, numbers, strict=True)) | ranks
        degrees["shard"] = degrees["shard"] if layout.shard else None
        degrees["ring_window"] = degrees["ring_window"] if layout.ring_window else None
        degrees["zero_plus_plus"] = _groups_of_two(layout)
        one = whole.model_copy(update=degrees)
        rows = None if layout.micro_batch is None else one.division.rows
        found.append(one.model_copy(update={"micro_batch": rows}))
    same = [one for one in found if _axes(one) == _axes(layout)]
    yield from sorted(same, key=lambda one: (one.world_size, str(one)))


def _fewer(number: int, most: int = 4) -> list[int]:
    """What a degree may become: 2, 4, `most`, its smallest prime factor, which divides what it divides, and at last itself."""
    if number == 1:
        return [1]
    return sorted({2, min(4, number), min(most, number), divisors(number)[1], number})


def _shapes_and_servers(layout: Layout) -> list[dict[str, Any]]:
    """Smaller shapes of a tensor group, or fewer parameter servers, as fields of a layout."""
    shape, servers = layout.tensor_shape, layout.parameter_server
    if shape is not None:
        return [{"tensor": one.ranks, "tensor_shape": one} for one in _shapes(shape)]
    if servers is not None:
        return [{"parameter_server": servers.model_copy(update={"servers": one})} for one in _fewer(servers.servers)]
    return [{}]


def _shapes(shape: TensorShape) -> list[TensorShape]:
    """Shapes of the same mode, at last the shape itself. Where there are several grids, at least two are left."""
    sides = _fewer(shape.shape[0])
    numbers = [shape.of_side(side) for side in sides]
    if shape.mode == "2.5d":
        numbers += [[side, side, min(2, shape.depth)] for side in sides]
    return [TensorShape(mode=shape.mode, shape=tuple(one)) for one in numbers]


def _groups_of_two(layout: Layout) -> ZeroPlusPlus | None:
    """ZeRO++ with the smallest groups."""
    given = layout.zero_plus_plus
    return given and given.model_copy(update={name: getattr(given, name) and 2 for name in ("secondary", "node")})


def _axes(layout: Layout) -> tuple[bool, ...]:
    """Which of the mesh axes a layout has."""
    groups = layout.shard is not None and layout.data > layout.shard
    degrees = (layout.data, layout.tensor, layout.ring, layout.ulysses, layout.pipeline, layout.expert)
    return (*(degree > 1 for degree in degrees), groups, windows(layout) > 1)


def _lengths(layout: Layout) -> Iterator[int]:
    """Lengths of sequences that context and tensor parallelism can divide, the shortest first."""
    parts = 2 * layout.context * (layout.tensor if layout.tensor_shape is None else 1)
    yield from (-(-length // parts) * parts for length in _SEQUENCES)


def _batches(train: TrainSpec, layout: Layout) -> Iterator[int]:
    """Smaller global batches for a layout, from one micro-batch of each replica: one sequence, or one for each row of a grid in it."""
    least = layout.data * (layout.micro_batch or layout.division.rows)
    yield from (least << shift for shift in range(12) if least << shift < train.global_batch)


def _models(arch: Architecture) -> Iterator[dict[str, Any]]:
    """Numbers of smaller models, the fewest blocks and heads first."""
    groups = arch.heads // arch.kv_heads
    for layers, kv_heads in product(range(1, arch.layers + 1), _up_to(arch.kv_heads)):
        heads = kv_heads * groups
        dim = heads * min(_HEAD, arch.head_size)
        numbers: dict[str, Any] = {"layers": layers, "dim": dim, "heads": heads, "kv_heads": kv_heads}
        numbers["hidden"] = min(_HIDDEN * dim, arch.hidden)
        if arch.experts is None:
            yield numbers
            continue
        for experts in _up_to(arch.experts):
            if experts > arch.top_k or experts == arch.experts:  # so that a token has a choice, if it had one
                yield numbers | {"experts": experts}


def _kept(model: ModelSpec, arch: Architecture) -> dict[str, Any]:
    """What a smaller model has of the given one. Norms of heads have a preset of their own, in which a head has its own size."""
    preset = "qwen3-nano" if arch.qk_norm else "nano"
    kept: dict[str, Any] = {"family": arch.family, "preset": preset, "tied": arch.tied, "vocab": model.vocab}
    if arch.family != "gpt2":
        kept["rope_theta"] = arch.rope_theta
    if arch.experts is None:
        return kept
    other_balance = "router_softmax" if arch.balance == "bias" else "bias_update_speed"
    return kept | {name: getattr(arch, name) for name in MIXTURE if name not in ("experts", other_balance)}


def _up_to(number: int) -> list[int]:
    """Powers of two below `number`, and `number` itself."""
    found = [1]
    while found[-1] * 2 < number:
        found.append(found[-1] * 2)
    return found if found[-1] == number else [*found, number]
