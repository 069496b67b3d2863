"""The textbook's loop with a delay of one step (PipeDream-2BW): W(t+1) = W(t) − ν · ∇f(W(t−1)), in one process, a batch at a time."""

from typing import Any

import torch

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
        self.put(self.versions[0])
        super().train(step)

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
