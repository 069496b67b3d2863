"""What is lost where a plan replaces parameters one module at a time: that two modules use one weight, and that a weight is frozen.

Torch's styles make a parameter for each module that they shard, and `SequenceParallel` makes each one trainable.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import nn
from torch.distributed.tensor import DTensor

from ..layout import Refusal
from ..param_shard import Placed, manual_shards


@contextmanager
def same_weights(part: nn.Module) -> Iterator[None]:
    """Replace parameters of `part` inside. Afterwards what was one weight is one again, and what was frozen is.

    Raises `Refusal` if the places of one weight are sharded differently, or some of them are not sharded.
    """
    weights = _weights(part)
    yield
    tie = getattr(part, "tie", None)
    if callable(tie):
        tie()
    now, by_hand = dict(part.named_parameters(remove_duplicate=False)), manual_shards(part)
    for places, trained in weights:
        names = [name for name in places if name in now]
        for name in names:
            now[name].requires_grad_(trained)
        if len({now[name] for name in names}) > 1:
            _share(part, names, now, by_hand)


def _weights(part: nn.Module) -> list[tuple[list[str], bool]]:
    """Of each weight its names, and whether it is trained. Without the weights, so that one that is replaced is freed at once."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, value in part.named_parameters(remove_duplicate=False):
        names.setdefault(value, []).append(name)
    return [(places, value.requires_grad) for value, places in names.items()]


def _share(
    part: nn.Module, names: Sequence[str], now: Mapping[str, nn.Parameter], by_hand: Mapping[str, Placed]
) -> None:
    """Make the first of `names` the parameter of all of them."""
    first, *others = names
    plain = [name for name in names if not isinstance(now[name], DTensor) and name not in by_hand]
    if plain and len(plain) < len(names):
        raise left_out(part, plain[0])
    for name in others:
        if sharding(now[name], by_hand.get(name)) != sharding(now[first], by_hand.get(first)):
            raise sharded_differently(part, first, name)
        owner, _, key = name.rpartition(".")
        setattr(part.get_submodule(owner), key, now[first])


def sharded_differently(part: nn.Module, first: str, second: str) -> Refusal:
    """What refuses a tensor plan that shards one weight of `part` in one way by its first name, and in another by its second."""
    return Refusal(
        "layout.tensor",
        f"{first} and {second} of {type(part).__name__} are one weight, and its tensor plan shards them differently.",
        "Give them styles that shard the weight alike, as RowwiseParallel of an embedding and ColwiseParallel of a linear layer do.",
    )


def left_out(part: nn.Module, name: str) -> Refusal:
    """What refuses a tensor plan that does not shard the parameter `name` of `part`."""
    message = f"the tensor plan of {type(part).__name__} leaves out {name}."
    return Refusal("layout.tensor", message, "Name every parameter in it.")


def sharding(value: nn.Parameter, placed: Placed | None) -> object:
    """What is equal for parameters that are sharded alike."""
    return (value.placements if isinstance(value, DTensor) else placed, value.shape)
