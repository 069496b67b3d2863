"""Whether one process computes what a layout computes, and what it must do for that besides training. Imports no torch.

A layout whose messages are quantised is compared with one process that rounds the same blocks, and a schedule with late gradients with
one process that takes them as late. What no process alone can do is refused.
"""

import re
from typing import Any, Final, Literal

from ...strategies.layout import Layout, Refusal, own_clocks
from ..spec import TrainSpec

#: What the one process does besides training.
Extra = Literal["rounds the same blocks", "takes its gradients as late"]

ROUNDS: Final[Extra] = "rounds the same blocks"
DELAYS: Final[Extra] = "takes its gradients as late"


def extra_of(layout: Layout) -> Extra | None:
    """What the one process of a layout does besides training; None: nothing."""
    if layout.versions > 1:
        return DELAYS
    smaller = layout.zero_plus_plus
    return ROUNDS if smaller is not None and (smaller.weights or smaller.gradients) else None


def check_comparable(train: TrainSpec) -> None:
    """Raises `Refusal` for a layout that does not compute what any one process computes, as far as this module knows."""
    if own_clocks(train.layout):
        raise Refusal(
            "layout.parameter_server",
            "workers with clocks of their own apply their gradients in the order in which they arrive, which differs from run to run.",
            "Set layout.parameter_server.mode to sync, without a bound.",
        )
    if extra_of(train.layout) == ROUNDS:
        _check_rounding(train)
    if train.layout.schedule == "pipedream" and not train.layout.vertical_sync and _is_tied(train):
        raise Refusal(
            "layout.schedule",
            "pipedream computes with two versions of a tied embedding at once, and one process has one.",
            "Set layout.vertical_sync to true, model.tied to false, or layout.schedule to 1f1b.",
        )


def _check_rounding(train: TrainSpec) -> None:
    """Refuse what one process cannot round as the ranks do."""
    layout, smaller = train.layout, train.layout.zero_plus_plus
    assert smaller is not None
    if train.model.import_ is not None and layout.tensor > 1:
        raise Refusal(
            "layout.zero_plus_plus",
            "which parts of its parameters tensor ranks round, the plan of a module of your own says to these ranks alone.",
            "Set layout.tensor to 1, or leave layout.zero_plus_plus out; what remains of the layout is then compared.",
        )
    if smaller.gradients is None:
        return
    leave = "leave gradients out; what remains of the layout is then compared."
    if layout.context > 1:
        raise Refusal(
            "layout.zero_plus_plus.gradients",
            f"{smaller.gradients} rounds the gradient of each rank's part of a sequence, and one process has that of the whole.",
            f"Set layout.context to 1, or {leave}",
        )
    if layout.stages > 1 and _is_tied(train):
        raise Refusal(
            "layout.zero_plus_plus.gradients",
            f"{smaller.gradients} rounds the gradients of a tied embedding at both ends of the pipeline, and one process has their sum.",
            f"Set layout.pipeline to 1, model.tied to false, or {leave}",
        )


def _is_tied(train: TrainSpec) -> bool:
    arch = train.architecture(256)
    return arch is not None and arch.tied


def with_blocks(train: TrainSpec, plan: Any) -> TrainSpec:
    """The spec, with the number of blocks of each stage that its own run has reported in `plan`: gradients are late by stage."""
    stages = plan.get("stage_blocks")
    if extra_of(train.layout) != DELAYS or not stages:
        return train
    blocks = tuple(end - first for first, end in stages)
    return train.model_copy(update={"layout": train.layout.with_(pipeline_split="flops", pipeline_blocks=blocks)})


#: The dimension of a parameter of the spec's families that tensor parallelism divides, by its name; others are whole on every rank.
_CUTS: Final = {
    r"\.(q|k|v|gate|up)\.(weight|bias)$|^head\.weight$": 0,
    r"\.(o|down)\.weight$|^(embed|positions)\.weight$": 1,
}


def cut_of(name: str, tied: bool) -> int | None:
    """The dimension of a parameter that tensor parallelism divides, by its name; None: none. A `tied` embedding is divided as the head."""
    if tied and name == "embed.weight":
        return 0
    return next((dim for pattern, dim in _CUTS.items() if re.search(pattern, name)), None)


def delay_of(name: str, layout: Layout) -> int:
    """How many updates late the gradient of the parameter `name` is.

    One under 2BW (2006.09503); p − 1 of p stages under PipeDream with vertical sync, and without it p − 1 − i for stage i (1806.03377),
    whose blocks are in `layout.pipeline_blocks`.
    """
    if layout.schedule == "2bw":
        return 1
    last = layout.pipeline - 1
    if layout.vertical_sync:
        return last
    block = re.match(r"blocks\.(\d+)\.", name)
    if block is None:
        return last if re.match(r"(embed|positions)\.", name) else 0
    assert layout.pipeline_blocks is not None
    left = int(block.group(1))
    for stage, blocks in enumerate(layout.pipeline_blocks):
        if left < blocks:
            return last - stage
        left -= blocks
    raise ValueError(f"{name} is in none of the stages {layout.pipeline_blocks}")
