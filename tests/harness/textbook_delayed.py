"""The textbook's loop with delays, in one process, a batch at a time.

PipeDream-2BW's is one step for all weights: W(t+1) = W(t) − ν · ∇f(W(t−1)). PipeDream's depends on the stage. With vertical sync it is
p − 1 steps for all weights. A run that continues another one may have other delays than that.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .textbook import Spec, Textbook

#: How many updates late the gradient of a weight is, by transformers' name of the weight.
Delays = Callable[[str], int]


def by_stage(blocks: Sequence[Sequence[int]]) -> Delays:
    """PipeDream's: stage i (0-based) of p takes its weights from before p − 1 − i updates.

    `blocks`: the first block and one past the last one of each stage.
    """
    last = len(blocks) - 1

    def delay_of(name: str) -> int:
        block = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
        if block is None:
            return last if re.search("embed_tokens|wte|wpe", name) else 0
        return last - next(at for at, (first, end) in enumerate(blocks) if first <= int(block.group(1)) < end)

    return delay_of


def of_all(delay: int) -> Delays:
    """One for all weights."""
    return lambda _: delay


class Delayed(Textbook):
    """Step 1 has no older weights, and takes its gradient where it stands: W(−1) = W(0). With `name: sgd` in the recipe it is SGD's."""

    delay = 1

    def __init__(self, spec: Spec, **more: Any) -> None:
        super().__init__(spec, **more)
        if self.recipe.get("name") == "sgd":
            self.optimizer = torch.optim.SGD(
                self.groups(), lr=self.recipe["lr"], momentum=self.recipe["beta1"], foreach=False
            )
        self.versions = [self.values()] * (self.delay + 1)
        self.optimizer.register_step_pre_hook(lambda *_: self.put(self.versions[-1]))
        self.optimizer.register_step_post_hook(lambda *_: self.keep())

    def train(self, step: int) -> None:
        self.put(self.stale())
        super().train(step)

    def stale(self) -> list[torch.Tensor]:
        """The weights at which the next gradient is taken."""
        return self.versions[0]

    def keep(self) -> None:
        self.versions = [*self.versions[1:], self.values()]

    def values(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    @torch.no_grad()
    def put(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self.model.parameters(), values, strict=True):
            parameter.copy_(value)


class NotDelayed(Delayed):
    delay = 0


class TwiceDelayed(Delayed):
    delay = 2


class Synchronised(Delayed):
    """PipeDream's with vertical sync, on p `stages`: all weights are those from before p − 1 updates."""

    def __init__(self, spec: Spec, stages: int, **more: Any) -> None:
        self.delay = stages - 1
        super().__init__(spec, **more)


class Stashed(Delayed):
    """PipeDream's, with the `blocks` of its stages.

    A tied weight is two parameters here, one at each end, of which each gets the sum of their gradients.
    """

    def __init__(self, spec: Spec, blocks: Sequence[Sequence[int]], **more: Any) -> None:
        self.delay = len(blocks) - 1
        super().__init__(spec, **more)
        delay_of = by_stage(blocks)
        self.delays = [delay_of(name) for name, _ in self.model.named_parameters()]

    def make_model(self) -> nn.Module:
        model = super().make_model()
        self.embed, self.head = model.get_input_embeddings(), model.get_output_embeddings()
        self.tied = self.head.weight is self.embed.weight
        if self.tied:
            self.head.weight = nn.Parameter(self.embed.weight.detach().clone())
        return model

    def stale(self) -> list[Tensor]:
        return [self.versions[-1 - delay][at] for at, delay in enumerate(self.delays)]

    def clip(self) -> Tensor:
        if not self.tied:
            return super().clip()
        self.embed.weight.grad += self.head.weight.grad
        self.head.weight.grad = None
        limit = self.recipe["clip_norm"]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), math.inf if limit is None else limit)
        self.head.weight.grad = self.embed.weight.grad.clone()
        return norm


class Resumed(Delayed):
    """A run with the delays `first`, which a run with the delays `then` continues after step `at`.

    The checkpoint between them has of each weight the newest version, and as many older ones as the first run's delay. The oldest of these
    stands for those before it, as W(0) does in the first steps.
    """

    delay = 0

    def __init__(self, spec: Spec, at: int, first: Delays, then: Delays, **more: Any) -> None:
        super().__init__(spec, **more)
        names = [name for name, _ in self.model.named_parameters()]
        self.at, self.first, self.then = at, [first(name) for name in names], [then(name) for name in names]

    def stale(self) -> list[Tensor]:
        newest = len(self.versions) - 1
        if newest < self.at:
            versions = [max(0, newest - delay) for delay in self.first]
        else:
            oldest = [max(0, self.at - delay) for delay in self.first]
            versions = [self.due(newest - delay, least) for delay, least in zip(self.then, oldest, strict=True)]
        return [self.versions[version][place] for place, version in enumerate(versions)]

    def due(self, version: int, oldest: int) -> int:
        """The version that is used where `version` is due, and `oldest` is the oldest there is."""
        return max(version, oldest)

    def keep(self) -> None:
        """All versions, of which version t is W(t)."""
        self.versions = [*self.versions, self.values()]


class NewestStands(Resumed):
    """An oracle with one wrong line: the newest version of the checkpoint stands for those that it lacks."""

    def due(self, version: int, oldest: int) -> int:
        return version if version >= oldest else self.at
