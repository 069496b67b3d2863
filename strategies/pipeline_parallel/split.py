"""Pipeline split: consecutive blocks go to consecutive stages. A stage keeps the global names of what it holds."""

from collections.abc import Collection
from typing import cast

from torch import nn

from ..cost.stage_balance import ModuleCosts, stage_blocks
from ..layout import Layout, Refusal


def module_costs(model: nn.Module) -> ModuleCosts:
    """Work by number of parameters, for a model that reports no FLOPs: 6 per token and weight; an embedding lookup costs none."""
    blocks, head = _whole(model)
    return ModuleCosts(0, tuple(_weights(block) for block in blocks.values()), _weights(head))


def split(model: nn.Module, stage: int, layout: Layout, costs: ModuleCosts) -> nn.Module:
    """Reduce `model`, in place, to one stage. Raises `Refusal` for a module that is not embed → blocks → norm → head."""
    if layout.stages == 1:
        return model
    blocks, head = _whole(model)
    if len(blocks) < layout.stages:
        raise Refusal(
            "layout.pipeline",
            f"{layout.stages} stages are more than the {len(blocks)} blocks of {type(model).__name__}.",
            f"Use layout.pipeline of at most {max(1, len(blocks) // layout.stages_per_rank)}.",
        )
    if (given := layout.pipeline_blocks) is not None and sum(given) != len(blocks):
        message = f"the stages have {sum(given)} blocks together, and {type(model).__name__} has {len(blocks)}."
        raise Refusal("layout.pipeline", message, f"Give numbers whose sum is {len(blocks)}, or leave blocks out.")
    mine = stage_blocks(layout, costs)[stage]
    first, last = stage == 0, stage == layout.stages - 1
    embed = getattr(model, "embed", None)
    if embed is not None and getattr(embed, "weight", None) is getattr(head, "weight", ()):
        _note_tie(model, first, last)
    keep(model, mine, first, last)
    return model


def blocks_of(model: nn.Module) -> nn.ModuleDict:
    """The blocks of a whole model. Raises `Refusal` for a module that is not embed → blocks → norm → head."""
    return _whole(model)[0]


def keep(model: nn.Module, mine: Collection[int], first: bool, last: bool) -> None:
    """Reduce `model`, in place, to the blocks of these numbers; with what is before them if `first`, after them if `last`."""
    blocks = cast(nn.ModuleDict, model.blocks)
    for index, name in enumerate(list(blocks)):
        if index not in mine:
            del blocks[name]
    if not first:
        _drop(model, "embed", "positions")
    if not last:
        _drop(model, "norm", "head")


def _whole(model: nn.Module) -> tuple[nn.ModuleDict, nn.Module]:
    if not isinstance(getattr(model, "blocks", None), nn.ModuleDict) or not hasattr(model, "head"):
        raise Refusal(
            "layout.pipeline",
            f"{type(model).__name__} cannot be split: it is not embed → blocks (a ModuleDict) → norm → head.",
            "Set layout.pipeline to 1, or build the module in that shape.",
        )
    return cast(nn.ModuleDict, model.blocks), cast(nn.Module, model.head)


def _note_tie(model: nn.Module, first: bool, last: bool) -> None:
    """Record that both ends hold the shared weight, as `embed.weight` (see `tied_embeddings.py`)."""
    ends = {"embed.weight": first, "head.weight": last}
    model.__dict__["tied_names"] = {own: "embed.weight" for own, here in ends.items() if here}


def _weights(module: nn.Module) -> int:
    return 6 * sum(value.numel() for value in module.parameters())


def _drop(model: nn.Module, *names: str) -> None:
    for name in names:
        if hasattr(model, name):
            setattr(model, name, None)
