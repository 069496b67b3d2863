"""DeepSeek-V3's mixture of experts (2412.19437, section 2.1.2) in Llama's blocks, as plain torch, and its training.

It shares no code with ours. It is given a model's numbers and its first values, by our names. Parentheses number the paper's equations.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.textbook import Spec, Textbook


class DeepSeek(nn.Module):
    """Token ids [batch, seq] → logits. `biases` [layers, experts] and `loads`, those since they were last cleared, are no parameters."""

    def __init__(self, numbers: dict[str, Any], values: dict[str, Tensor]) -> None:
        super().__init__()
        self.numbers = numbers
        self.values = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(v) for name, v in values.items()})
        self.biases = torch.zeros(numbers["layers"], numbers["experts"], dtype=torch.float64)
        self.loads = [Counter() for _ in range(numbers["layers"])]
        self.losses: list[
            Tensor
        ] = []  # (17) of each layer and sequence, without α; and of each layer the z-loss per token

    def value(self, name: str) -> Tensor:
        return self.values[name.replace(".", "/")]

    def forward(self, tokens: Tensor) -> Tensor:
        self.losses.clear()
        h = self.value("embed.weight")[tokens]
        for layer in range(self.numbers["layers"]):
            at = f"blocks.{layer}"
            u = h + self.attention(f"{at}.attention", self.norm(f"{at}.attention_norm", h))
            h = u + self.mixture(layer, f"{at}.mlp", self.norm(f"{at}.mlp_norm", u))
        return self.norm("norm", h) @ self.value("head.weight").T

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.value(f"{name}.weight")

    def attention(self, name: str, x: Tensor) -> Tensor:
        batch, seq, dim = x.shape
        size = dim // self.numbers["heads"]
        q, k, v = ((x @ self.value(f"{name}.{part}.weight").T).view(batch, seq, -1, size) for part in "qkv")
        angles = torch.outer(torch.arange(seq), 10_000.0 ** (-torch.arange(0, size, 2, dtype=x.dtype) / size))
        turn = torch.polar(torch.ones_like(angles), angles)[:, None]
        q, k = (torch.view_as_complex(torch.stack(y.chunk(2, -1), -1)) * turn for y in (q, k))
        q, k = (torch.cat([y.real, y.imag], -1) for y in (q, k))
        k, v = (y.repeat_interleave(self.numbers["heads"] // self.numbers["kv_heads"], 2) for y in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / size**0.5
        scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), -torch.inf)
        mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2)
        return mixed @ self.value(f"{name}.o.weight").T

    def mixture(self, layer: int, name: str, u: Tensor) -> Tensor:
        """What (12) adds to the residual stream."""
        experts, top_k, hidden = (self.numbers[key] for key in ("experts", "top_k", "hidden"))
        logits = u @ self.value(f"{name}.router.weight").T
        s = 1 / (1 + (-logits).exp())  # (15)
        chosen = (s + self.biases[layer]).argsort(-1, descending=True)[..., :top_k]  # (16)
        picked = torch.zeros_like(s).scatter(-1, chosen, 1.0)
        g = s * picked  # (14)
        g = g / g.sum(-1, keepdim=True)  # (13)
        self.loads[layer].update(chosen.flatten().tolist())
        self.losses.append(self.sequence_loss(s))
        self.losses.append(logits.exp().sum(-1).log().square().mean() * self.numbers["z_loss"])
        stacks = [self.value(f"{name}.experts.{part}") for part in ("gate", "up", "down")]
        out = sum(g[..., i, None] * swiglu(u, *(stack[i] for stack in stacks)) for i in range(experts))
        gate, up, down = (self.value(f"{name}.shared_experts.{part}.weight") for part in ("gate", "up", "down"))
        for i in range(self.numbers["shared_experts"]):
            own = slice(i * hidden, (i + 1) * hidden)
            out = out + swiglu(u, gate[own], up[own], down[:, own])
        return out

    def sequence_loss(self, s: Tensor) -> Tensor:
        """(17) to (20), the mean over sequences. The biases are not in it."""
        best = s.argsort(-1, descending=True)[..., : self.numbers["top_k"]]
        f = torch.zeros_like(s).scatter(-1, best, 1.0).mean(1) * self.numbers["experts"] / self.numbers["top_k"]  # (18)
        p = (s / s.sum(-1, keepdim=True)).mean(1)
        return self.numbers["balance_loss"] * (f * p).sum(-1).mean()

    def move_biases(self) -> None:
        for bias, load in zip(self.biases, self.loads, strict=True):
            mean = sum(load.values()) / len(bias)
            for expert in range(len(bias)):
                if load[expert] != mean:
                    bias[expert] += self.numbers["bias_update_speed"] * (1 if load[expert] < mean else -1)
            load.clear()


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


class MixtureTextbook(Textbook):
    """Trains a `DeepSeek` from its first `values`."""

    def __init__(self, spec: Spec, values: dict[str, Tensor]) -> None:
        self.values = values
        super().__init__(spec)

    def make_model(self) -> nn.Module:
        return DeepSeek(self.spec["model"], self.values)

    def train(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        rows = self.corpus.training(self.first_samples[step - 1], self.batches[step - 1], self.spec["seed"])
        loss = self.loss(rows)
        self.optimizer.zero_grad()
        (loss + sum(self.model.losses)).backward()
        norm = self.clip()
        self.optimizer.step()
        self.model.move_biases()
        self.record.losses.append(loss.item())
        self.record.norms.append(norm.item())

    def validate(self, batch: int) -> float:
        found = super().validate(batch)
        for load in self.model.loads:
            load.clear()
        return found

    def loss(self, rows: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        logits = self.model(rows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
