"""Pipeline split: consecutive blocks go to consecutive stages. A stage keeps the global names of what it holds.

What is neither a block nor an end of the model is on every stage. A module of the user's own may say in `used_by` which blocks use it:
then it is on their stages alone. A weight that several stages hold is one weight: they are tied (`tied_weights.py`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, cast

from torch import nn

from ..cost.stage_balance import ModuleCosts, stage_blocks
from ..layout import Layout, Refusal
from ..layout_rules import cannot_split
from ..memory_options import splits_backward
from ..param_shard import Tie, note_ties

#: What is before the blocks, and after them.
_BEFORE: Final = ("embed", "positions")
_AFTER: Final = ("norm", "head")


def module_costs(model: nn.Module) -> ModuleCosts:
    """Work by number of parameters, for a model that reports no FLOPs: 6 per token and weight; an embedding lookup costs none."""
    blocks, head = _whole(model)
    return ModuleCosts(0, tuple(_weights(block) for block in blocks.values()), _weights(head))


def split(model: nn.Module, stage: int, layout: Layout, costs: ModuleCosts) -> nn.Module:
    """Reduce `model`, in place, to one stage.

    Raises `Refusal` for a module that is not embed → blocks → norm → head, or that has no such stages.
    """
    if layout.stages == 1:
        return model
    blocks, _ = _whole(model)
    if len(blocks) < layout.stages:
        raise Refusal(
            "layout.pipeline",
            f"{layout.stages} stages are more than the {len(blocks)} blocks of {type(model).__name__}.",
            f"Use layout.pipeline of at most {max(1, len(blocks) // layout.stages_per_rank)}.",
        )
    if (given := layout.pipeline_blocks) is not None and sum(given) != len(blocks):
        message = f"the stages have {sum(given)} blocks together, and {type(model).__name__} has {len(blocks)}."
        raise Refusal("layout.pipeline", message, f"Give numbers whose sum is {len(blocks)}, or leave blocks out.")
    stages = stage_blocks(layout, costs)
    if not stages[0] and used_by(model):
        message = (
            f"the first stage has no block, and what {type(model).__name__} begins with belongs to blocks (used_by)."
        )
        raise Refusal("layout.pipeline", message, "Give the first stage a block, or leave blocks out.")
    if splits_backward(layout) and _share_inside(model, stages):
        raise cannot_split(layout)
    note_ties(model, _ties(model, stage, stages))
    keep(model, stages[stage], stage == 0, stage == layout.stages - 1)
    return model


def blocks_of(model: nn.Module) -> nn.ModuleDict:
    """The blocks of a whole model. Raises `Refusal` for a module that is not embed → blocks → norm → head."""
    return _whole(model)[0]


def keep(model: nn.Module, mine: Collection[int], first: bool, last: bool) -> None:
    """Reduce `model`, in place, to the blocks of these numbers; with what is before them if `first`, after them if `last`.

    What `used_by` names is kept for the blocks that use it.
    """
    blocks, used = cast(nn.ModuleDict, model.blocks), used_by(model)
    for index, name in enumerate(list(blocks)):
        if index not in mine:
            del blocks[name]
    kept = {*(_BEFORE if first else ()), *(_AFTER if last else ())} - used.keys()
    kept |= {name for name, users in used.items() if any(user in blocks for user in users)}
    for name in {*_BEFORE, *_AFTER, *used} - kept:
        if hasattr(model, name):
            setattr(model, name, None)


def used_by(model: nn.Module) -> Mapping[str, Collection[str]]:
    """What a module of the user's own says in `used_by`: an attribute of it → the names of the blocks that use it. Empty: nothing.

    Raises `Refusal` for a name that is not there.
    """
    found: Mapping[str, Collection[str]] = getattr(model, "used_by", {})
    blocks = list(blocks_of(model)) if found else []
    for name, users in found.items():
        missing = [user for user in users if user not in blocks]
        if missing or not hasattr(model, name):
            what = f"block {missing[0]!r} of {name!r}" if missing else f"{name!r}"
            message = f"used_by of {type(model).__name__} names {what}, which it does not have."
            raise Refusal(
                "layout.pipeline", message, "Name its attributes and its blocks, or set layout.pipeline to 1."
            )
    return found


def _ties(model: nn.Module, stage: int, stages: Sequence[range]) -> dict[str, Tie]:
    """The notes of `stage` on its weights that other stages of the whole `model` hold too."""
    places = _places(model, stages)
    every = tuple(range(len(stages)))
    found: dict[str, Tie] = {}
    for same in _names(model.named_parameters(remove_duplicate=False)):
        held = {name: places.get(_owner(name), every) for name in same}
        holders = tuple(sorted({one for each in held.values() for one in each}))
        if len(holders) > 1:
            found |= {name: Tie(same[0], holders, stage) for name in same if stage in held[name]}
    return found


def _share_inside(model: nn.Module, stages: Sequence[range]) -> bool:
    """Whether two blocks of one stage share a trained weight, by what the model says. The first stage's backward passes are whole.

    What else uses a weight, the graph of the first step shows (`weight_pass_errors.py`).
    """
    trained = [(name, value) for name, value in model.named_parameters(remove_duplicate=False) if value.requires_grad]
    places, owners = _places(model, stages), {_owner(name) for name, _ in trained}
    users = [[f"blocks.{user}" for user in given] for name, given in used_by(model).items() if name in owners]
    users += [[owner for owner in {_owner(name) for name in same} if owner in places] for same in _names(trained)]
    counts = (Counter(places[one] for one in each if one.startswith("blocks.")) for each in users)
    return any(count > 1 for each in counts for (stage,), count in each.items() if stage)


def _names(values: Iterable[tuple[str, nn.Parameter]]) -> Iterable[list[str]]:
    """The names of each parameter."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, value in values:
        names.setdefault(value, []).append(name)
    return names.values()


def _places(model: nn.Module, stages: Sequence[range]) -> dict[str, tuple[int, ...]]:
    """Attribute, or block as `blocks.NAME` → the stages that have it. What is not there is on every stage."""
    names = list(blocks_of(model))
    of_block = {names[index]: stage for stage, part in enumerate(stages) for index in part}
    ends = {**dict.fromkeys(_BEFORE, (0,)), **dict.fromkeys(_AFTER, (len(stages) - 1,))}
    shared = {name: tuple(sorted({of_block[user] for user in users})) for name, users in used_by(model).items()}
    return {**ends, **shared, **{f"blocks.{name}": (stage,) for name, stage in of_block.items()}}


def _owner(name: str) -> str:
    """The attribute, or the block, to which the parameter `name` belongs."""
    first, _, rest = name.partition(".")
    return f"blocks.{rest.partition('.')[0]}" if first == "blocks" else first


def _whole(model: nn.Module) -> tuple[nn.ModuleDict, nn.Module]:
    if not isinstance(getattr(model, "blocks", None), nn.ModuleDict) or not hasattr(model, "head"):
        raise Refusal(
            "layout.pipeline",
            f"{type(model).__name__} cannot be split: it is not embed → blocks (a ModuleDict) → norm → head.",
            "Set layout.pipeline to 1, or build the module in that shape.",
        )
    return cast(nn.ModuleDict, model.blocks), cast(nn.Module, model.head)


def _weights(module: nn.Module) -> int:
    return 6 * sum(value.numel() for value in module.parameters())
