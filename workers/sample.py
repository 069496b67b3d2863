"""Sampling: continues a text with a trained model. One process on a CPU, in float32, computes the whole context again for each token.

That is slow for large models and long texts, and meant to show what a training has learned; to serve a model, export it.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..strategies.layout import Refusal
from ..strategies.param_shard import ParamShard
from .checkpoint.errors import CheckpointError
from .checkpoint.manifest import read
from .checkpoint.reader import load_into
from .checkpoint.verify import verify
from .data.tokenizer import ENDING_BYTES, Tokenizer, load_tokenizer
from .huggingface.import_weights import Pretrained
from .models.hf_config import architecture_of
from .models.presets import Architecture
from .models.registry import make
from .spec import DataSpec
from .storage.folder import Folder


@dataclass(frozen=True)
class Draw:
    """The maximum number of tokens, and how each is drawn: temperature 0 takes the likeliest; the same seed draws the same text."""

    tokens: int = 200
    temperature: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Writer:
    """A model with its tokenizer. `context`: the number of preceding tokens that it uses, as in training."""

    model: nn.Module
    tokenizer: Tokenizer
    context: int

    @torch.no_grad()
    def write(self, prompt: str, draw: Draw) -> str:
        """The text after `prompt`, up to the end of a document. Without a prompt it begins a document."""
        generator = torch.Generator().manual_seed(draw.seed)
        ids = [int(one) for one in self.tokenizer.encode([prompt])[0]] or [int(one) for one in self.tokenizer.separator]
        first = len(ids)
        while len(ids) - first < draw.tokens:
            logits = self.model(torch.tensor([ids[-self.context :]]))[0, -1, : self.tokenizer.vocab]
            token = _drawn(logits, draw.temperature, generator)
            if token == self.tokenizer.end:
                break
            ids.append(token)
        return self.tokenizer.decode(ids[first:])


def of_checkpoint(checkpoint: Folder, tokenizer: str | None = None) -> Writer:
    """The model of a `step-…` folder with the tokenizer of its training, unless `tokenizer` names another.

    Raises `CheckpointError`, `StorageError`, and `DataError` for the tokenizer.
    """
    manifest = read(checkpoint)
    if manifest.training.get("model") is None:
        raise CheckpointError(
            f"{checkpoint} is of a module of your own, which cannot be built here; sample it with code of your own."
        )
    arch = Architecture.model_validate(manifest.training["model"])
    verify(checkpoint, manifest)
    model = _empty(arch)
    load_into(checkpoint, manifest, [_whole(name, value) for name, value in model.named_parameters()])
    context = int((manifest.training.get("data") or {}).get("seq_len") or arch.max_seq_len)
    packed = (manifest.training.get("data") or {}).get("tokenizer") == ENDING_BYTES
    return _writer(model, arch, tokenizer or str(manifest.training.get("tokenizer") or "bytes"), context, packed)


def of_export(folder: Path, tokenizer: str | None = None) -> Writer:
    """The model of a Hugging Face folder with its `tokenizer.json`. Without one a byte is a token, as for models of 256 tokens.

    Raises `Refusal`, and `DataError` for the tokenizer.
    """
    arch = architecture_of(folder)
    model = _empty(arch)
    values = Pretrained(folder, arch, (name for name, _ in model.named_parameters()))
    for name, value in model.named_parameters():
        value.copy_(values(name, value.shape, (0,) * value.dim(), value.shape))
    own = str(folder) if (folder / "tokenizer.json").is_file() else "bytes"
    return _writer(model, arch, tokenizer or own, arch.max_seq_len)


def _writer(model: nn.Module, arch: Architecture, tokenizer: str, context: int, packed: bool = False) -> Writer:
    found = load_tokenizer(DataSpec(tokenizer=tokenizer, documents="packed" if packed else "joined"))
    if found.vocab > arch.vocab:
        problem = f"{tokenizer} has {found.vocab} tokens, but the model has {arch.vocab}."
        raise Refusal("tokenizer", problem, "Name the tokenizer that the model was trained with.")
    return Writer(model, found, min(context, arch.max_seq_len))


def _empty(arch: Architecture) -> nn.Module:
    """The model without values, in float32."""
    with torch.device("meta"):
        model = make(arch)
    model.to_empty(device="cpu")
    model.tie()
    return model.eval().requires_grad_(False)


def _whole(name: str, value: torch.Tensor) -> ParamShard:
    return ParamShard(name, tuple(value.shape), (0,) * value.dim(), value, frozenset())


def _drawn(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    """A token of `logits` [vocab]."""
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
