"""Why a pass for weights alone fails: its stage uses a weight in several places, or passes on what has not met its inputs.

Torch's pass begins at the nodes of the graph that have a weight as an input. From the last place of a weight to the first it passes
through what is between them. It frees that, so the weights there have no graph left; or it adds a gradient twice. With nothing between
the places the pass is right. Which places there are depends on what the stage computes, so only its graph shows them.

It knows only the weights between its stage's results and its inputs: of a result that depends on weights alone they would get no gradient.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..layout import Refusal

#: What torch says of a graph that is freed.
_FREED = "backward through the graph a second time"


@contextmanager
def explained(part: nn.Module, groups: Sequence[Mapping[str, Any]] | None, schedule: str) -> Iterator[None]:
    """Run the pass for weights of the stage `part` inside. `groups`: of weights, as torch's pass for inputs returned them.

    Raises `Refusal` with the names of weights whose several places torch cannot compute.
    """
    several = [node for group in groups or () if len(group["intermediates"]) > 1 for node in group["params"]]
    if max(Counter(several).values(), default=0) > 1:
        raise _refusal(part, several, schedule)
    try:
        yield
    except RuntimeError as error:
        if not several or _FREED not in str(error):
            raise
        raise _refusal(part, several, schedule) from error


def check_graph(part: nn.Module, results: Sequence[Any], inputs: Sequence[Any], schedule: str) -> None:
    """Raise `Refusal` if a result of the stage `part` depends on its weights, and on no input."""
    taken = {id(one) for one in inputs}
    for result in results:
        if isinstance(result, torch.Tensor) and result.grad_fn is not None:
            leaves = _leaves(result.grad_fn)
            if taken.isdisjoint(id(node.variable) for node in leaves) and (names := _names(part, leaves)):
                raise Refusal(
                    "layout.schedule",
                    f"{schedule} splits the backward pass, and torch cannot split that of a stage which passes on what depends on "
                    f"weights alone: on {names[0]} of {type(part).__name__}.",
                    "Let it depend on the stage's inputs, too, or set layout.schedule to interleaved, 1f1b or gpipe.",
                )


def _leaves(root: Any) -> list[Any]:
    """The nodes of the graph below `root` that add up gradients of weights and inputs."""
    pending, seen = [root], {root}
    while pending:
        for node, _ in pending.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                pending.append(node)
    return [node for node in seen if hasattr(node, "variable")]


def _names(part: nn.Module, nodes: Sequence[Any]) -> list[str]:
    """The names of the weights whose gradients the nodes add up."""
    weights = {id(node.variable) for node in nodes}
    return [name for name, value in part.named_parameters() if id(value) in weights]


def _refusal(part: nn.Module, several: Sequence[Any], schedule: str) -> Refusal:
    """What refuses `schedule` for the weights whose gradients the nodes `several` add up."""
    names = _names(part, several)
    # Last those of blocks, which may be there only because they share nodes with the others.
    names.sort(key=lambda name: name.startswith("blocks."))
    return Refusal(
        "layout.schedule",
        f"{schedule} splits the backward pass, and torch cannot split that of a stage which uses a weight in several places, with "
        f"other weights between them: {names[0] if names else 'a weight'} of {type(part).__name__}.",
        "Let each stage after the first use it in one place, or set layout.schedule to interleaved, 1f1b or gpipe.",
    )
