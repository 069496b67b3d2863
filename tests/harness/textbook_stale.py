"""The textbook's loop with stale gradients: one process replays what servers recorded, a push or a pull at a time.

It shares no code with our strategies. The model is any module, and a server's optimizer is torch's over the parameters that it held.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .recorded_pushes import Line, in_order
from .textbook import Corpus


class Replay:
    """`held`: the names of the parameters of each server; `records`: what each recorded."""

    def __init__(
        self,
        spec: dict[str, Any],
        make: Callable[[], nn.Module],
        held: Sequence[Sequence[str]],
        records: Sequence[Sequence[Line]],
    ) -> None:
        self.spec, self.recipe, self.held = spec, spec["optimizer"], held
        self.workers = spec["layout"]["data"]
        self.corpus = Corpus(**spec["data"])
        torch.manual_seed(spec["seed"])
        self.kept = make().double()
        self.worker = make().double()
        self.optimizers = [self.optimizer(names) for names in held]
        first = {name: value.clone() for name, value in self.kept.state_dict().items()}
        self.seen = {(worker, 0): dict(first) for worker in range(self.workers)}
        self.shares: dict[tuple[int, int], tuple[float, float]] = {}  # worker, step → its summand of the loss, its norm
        for server, line in in_order(records):
            self.take(server, *line)

    def optimizer(self, names: Sequence[str]) -> torch.optim.Optimizer:
        own = [self.kept.get_parameter(name) for name in names]
        decay = {True: self.recipe["weight_decay"], False: 0.0}
        groups = [
            {"params": [p for p in own if (p.dim() > 1) == matrix], "weight_decay": decay[matrix]} for matrix in decay
        ]
        groups = [group for group in groups if group["params"]]
        if self.recipe["name"] == "sgd":
            return torch.optim.SGD(groups, lr=1.0, momentum=self.recipe["beta1"], foreach=False)
        betas = (self.recipe["beta1"], self.recipe["beta2"])
        return torch.optim.AdamW(groups, lr=1.0, betas=betas, eps=self.recipe["eps"], foreach=False)

    def take(self, server: int, kind: str, worker: int, clock: int) -> None:
        if kind == "pull":
            own = {name: self.kept.get_parameter(name).detach().clone() for name in self.held[server]}
            self.seen.setdefault((worker, clock), {}).update(own)
        if kind != "push":
            return
        factor = self.gradients(worker, clock)
        for name in self.held[server]:
            gradient = self.worker.get_parameter(name).grad
            assert gradient is not None
            self.kept.get_parameter(name).grad = gradient * factor
        for group in self.optimizers[server].param_groups:
            group["lr"] = self.rate(clock)
        self.optimizers[server].step()

    def gradients(self, worker: int, step: int) -> float:
        """The gradients of the worker's step, at the values that it had; returns the factor that clips them."""
        self.worker.load_state_dict(self.seen[worker, step - 1])
        self.worker.zero_grad()
        rows, batch = self.rows(worker, step), self.spec["global_batch"]
        logits = self.worker(rows[:, :-1])
        total = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")
        loss = total / (batch * (rows.shape[1] - 1))
        loss.backward()
        squares = sum(value.grad.square().sum().item() for value in self.worker.parameters() if value.grad is not None)
        norm = self.workers * math.sqrt(squares)  # of the mean over its own rows
        self.shares[worker, step] = (loss.item(), norm)
        limit = self.recipe["clip_norm"]
        return 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))

    def rows(self, worker: int, step: int) -> torch.Tensor:
        """The worker's rows of the step's batch: every micro-batch has some of each worker, one worker after the other."""
        batch = self.spec["global_batch"]
        size = self.spec["layout"].get("micro_batch", batch // self.workers)
        rows = self.corpus.training((step - 1) * batch, batch, self.spec["seed"])
        return rows.view(-1, self.workers, size, rows.shape[1])[:, worker].flatten(0, 1)

    def rate(self, step: int) -> float:
        """A linear warm-up, then constant."""
        return float(self.recipe["lr"] * min(1.0, step / max(1, self.spec["schedule"]["warmup"])))

    @property
    def losses(self) -> list[float]:
        """The mean over each step's samples, without those of a worker that was gone."""
        found = [[loss for loss, _ in self.of_step(step)] for step in range(1, self.spec["steps"] + 1)]
        return [sum(some) * self.workers / len(some) for some in found]

    @property
    def norms(self) -> list[float]:
        """The root mean square of the norms of the workers that took each step."""
        found = [[norm for _, norm in self.of_step(step)] for step in range(1, self.spec["steps"] + 1)]
        return [math.sqrt(sum(norm**2 for norm in some) / len(some)) for some in found]

    def of_step(self, step: int) -> list[tuple[float, float]]:
        """Loss and norm of each worker that took the step."""
        return [self.shares[worker, step] for worker in range(self.workers) if (worker, step) in self.shares]
