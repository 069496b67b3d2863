"""The textbook's loop with delays, in one process, a batch at a time.

PipeDream-2BW's is one step for all weights: W(t+1) = W(t) − ν · ∇f(W(t−1)). PipeDream's depends on the stage. With vertical sync it is
p − 1 steps for all weights.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .textbook import Spec, Textbook


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
    """PipeDream's: stage i (0-based) of p takes its weights from before p − 1 − i updates.

    `blocks`: the first block and one past the last one of each stage. A tied weight is two parameters here, one at each end, of which each
    gets the sum of their gradients.
    """

    def __init__(self, spec: Spec, blocks: Sequence[Sequence[int]], **more: Any) -> None:
        self.blocks, self.delay = blocks, len(blocks) - 1
        super().__init__(spec, **more)
        self.delays = [self.delay_of(name) for name, _ in self.model.named_parameters()]

    def make_model(self) -> nn.Module:
        model = super().make_model()
        self.embed, self.head = model.get_input_embeddings(), model.get_output_embeddings()
        self.tied = self.head.weight is self.embed.weight
        if self.tied:
            self.head.weight = nn.Parameter(self.embed.weight.detach().clone())
        return model

    def delay_of(self, name: str) -> int:
        block = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
        if block is None:
            return self.delay if re.search("embed_tokens|wte|wpe", name) else 0
        stage = next(at for at, (first, end) in enumerate(self.blocks) if first <= int(block.group(1)) < end)
        return self.delay - stage

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
