"""A training loop as textbooks have it. It shares no code with ours: models are transformers', AdamW and clipping are torch's.

What it knows of our recipe stands in `docs/training-step.md`: which tokens a step reads, the loss, and the learning rate. It computes in
float64, with the whole global batch in one pass, in one process.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Spec = dict[str, Any]


@dataclass
class Record:
    """What a training gave, by step, and its last parameters by transformers' names."""

    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    validations: dict[int, float] = field(default_factory=dict)
    parameters: dict[str, Tensor] = field(default_factory=dict)

    def after(self, step: int) -> "Record":
        """What a run gives that goes on after `step`."""
        validations = {at: loss for at, loss in self.validations.items() if at > step}
        return Record(self.rates[step:], self.losses[step:], self.norms[step:], validations, self.parameters)


class Textbook:
    """Trains the model in a Hugging Face folder by a train spec, of which every number that matters here is written out.

    `batches`: the global batch of each step, where they differ.
    """

    def __init__(self, spec: Spec, batches: Sequence[int] = ()) -> None:
        self.spec, self.recipe, self.end = spec, spec["optimizer"], spec["steps"]
        self.corpus = Corpus(**spec["data"])
        self.batches = list(batches) or [spec["global_batch"]] * spec["steps"]
        self.first_samples = [sum(self.batches[:step]) for step in range(len(self.batches))]
        self.model = self.make_model()
        self.optimizer = torch.optim.AdamW(self.groups(), foreach=False, **self.adamw())
        self.record = Record()

    def make_model(self) -> nn.Module:
        return load(self.spec["model"]["from"])

    def run(self) -> Record:
        for step in range(1, self.spec["steps"] + 1):
            self.train(step)
            if step % self.spec["eval"]["every"] == 0 or step == self.spec["steps"]:
                self.record.validations[step] = self.validate(self.batches[step - 1])
        self.record.parameters = {name: value.detach() for name, value in self.model.state_dict().items()}
        return self.record

    def train(self, step: int) -> None:
        rate = self.learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows = self.corpus.training(self.first_samples[step - 1], self.batches[step - 1], self.spec["seed"])
        loss = self.loss(rows, **self.spec["loss"])
        self.optimizer.zero_grad()
        loss.backward()
        norm = self.clip()
        self.optimizer.step()
        self.record.rates.append(rate)
        self.record.losses.append(loss.item())
        self.record.norms.append(norm.item())

    @torch.no_grad()
    def validate(self, batch: int) -> float:
        """The mean cross-entropy over the first `eval.batches` global batches."""
        return self.loss(self.corpus.validation(self.spec["eval"]["batches"] * batch)).item()

    def loss(self, rows: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        """The mean over all tokens of `rows` [samples, seq_len + 1]."""
        logits = self.model(input_ids=rows[:, :-1], use_cache=False).logits
        log_z = logits.logsumexp(-1)
        at_target = logits.gather(-1, rows[:, 1:, None]).squeeze(-1)
        cross_entropy = log_z - (1 - label_smoothing) * at_target - label_smoothing * logits.mean(-1)
        return (cross_entropy + z_loss * log_z.square()).mean()

    def clip(self) -> Tensor:
        """Scale the gradients; returns their norm before that."""
        limit = self.recipe["clip_norm"]
        return nn.utils.clip_grad_norm_(self.model.parameters(), math.inf if limit is None else limit)

    def adamw(self) -> dict[str, Any]:
        return {
            "lr": self.recipe["lr"],
            "betas": (self.recipe["beta1"], self.recipe["beta2"]),
            "eps": self.recipe["eps"],
        }

    def groups(self) -> list[dict[str, Any]]:
        """Embeddings, the head and all other matrices decay; norms and biases do not."""
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        return [
            {"params": matrices, "weight_decay": self.recipe["weight_decay"]},
            {"params": others, "weight_decay": 0.0},
        ]

    def learning_rate(self, step: int) -> float:
        """Up in `warmup` equal parts to the peak, of which step `warmup` (without a warm-up step 1) has all; then down to the last step."""
        schedule, peak = self.spec["schedule"], self.recipe["lr"]
        top = max(schedule["warmup"], 1)
        if step <= top:
            return peak * step / top
        if schedule["name"] == "constant":
            return peak
        done = (step - top) / (self.end - top)
        left = 1 - done if schedule["name"] == "linear" else (1 + math.cos(math.pi * done)) / 2
        least = schedule["min_ratio"] * peak
        return least + (peak - least) * left


class Corpus:
    """Plain text files as bytes, a newline after each; the last `validation` of all tokens are held out."""

    def __init__(self, files: Sequence[str], seq_len: int, validation: float, **_: Any) -> None:
        text = b"".join(Path(file).read_bytes() + b"\n" for file in files)
        cut = len(text) - round(len(text) * validation)
        self.seq_len = seq_len
        self.splits = {"train": text[:cut], "validation": text[cut:]}

    def training(self, first: int, count: int, seed: int) -> Tensor:
        """Samples `first` and after it of the training [count, seq_len + 1]."""
        return torch.tensor(list(self._samples("train", f"train/{seed}", range(first, first + count))))

    def validation(self, count: int) -> Tensor:
        """The first samples of the validation split."""
        return torch.tensor(list(self._samples("validation", "validation", range(count))))

    def _samples(self, split: str, order: str, samples: range) -> Iterator[list[int]]:
        """An epoch is a permutation of all windows. A window has one token more than its inputs, the next window's first."""
        text = self.splits[split]
        windows = (len(text) - 1) // self.seq_len
        for sample in samples:
            epoch, place = divmod(sample, windows)
            start = permuted(place, windows, f"{order}/{epoch}") * self.seq_len
            yield list(text[start : start + self.seq_len + 1])


def permuted(place: int, size: int, key: str) -> int:
    """Where the permutation of range(size) that `key` names sends `place`: a Feistel network of six rounds, walked until inside."""
    half = max(1, math.ceil(math.log2(size) / 2))
    digest = hashlib.blake2b(key.encode(), digest_size=48).digest()
    round_keys = [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 48, 8)]
    while True:
        left, right = divmod(place, 2**half)
        for round_key in round_keys:
            left, right = right, left ^ (_mixed(right ^ round_key) % 2**half)
        place = left * 2**half + right
        if place < size:
            return place


def _mixed(x: int) -> int:
    """The finaliser of splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor % 2**64
    return x ^ (x >> 31)


def load(folder: str) -> nn.Module:
    """Transformers' model, in float64 throughout: its norms and rotary angles are float32 whatever the weights are."""
    from transformers import AutoModelForCausalLM

    model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="sdpa")
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.forward = partial(_rms_norm, module)
        elif kind.endswith("RotaryEmbedding"):
            module.forward = partial(_rotary, module)
    return model


def _rms_norm(norm: Any, x: Tensor) -> Tensor:
    out: Tensor = norm.weight * x / (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
    return out


def _rotary(rotary: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [batch, seq, head_dim]."""
    config = rotary.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    theta = config.rope_parameters["rope_theta"]
    inverse = 1.0 / theta ** (torch.arange(0, size, 2, dtype=x.dtype) / size)
    angles = (position_ids[..., None] * inverse).repeat(1, 1, 2)
    return angles.cos(), angles.sin()
