"""Models that are trained on something else than the next token. Each `forward` takes a source's fields and returns one loss per sample."""

import copy
from collections.abc import Mapping

import torch
from blocks import LanguageModel, Transformer, loss_of
from encoders import EncoderDecoder
from texts import VOCABULARY
from torch import nn
from torch.nn import functional

Fields = Mapping[str, torch.Tensor]


class Masked(nn.Module):
    """BERT (Devlin et al., 1810.04805): every position sees all others, and the hidden ones are predicted."""

    def __init__(self, dim: int, layers: int, heads: int) -> None:
        super().__init__()
        self.body = Transformer(dim, layers, heads, causal=False)
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, fields: Fields) -> torch.Tensor:
        return loss_of(self.head(self.body(fields["tokens"])), fields["targets"])


class Embedding(nn.Module):
    """Embeddings by contrast (InfoNCE; van den Oord et al., 1807.03748): the positive among the sample's own negatives.

    The negatives are the sample's own, and not those of the same batch, so that a loss depends on its sample alone.
    """

    def __init__(self, dim: int, layers: int, heads: int, temperature: float) -> None:
        super().__init__()
        self.body, self.temperature = Transformer(dim, layers, heads, causal=False), temperature

    def forward(self, fields: Fields) -> torch.Tensor:
        negatives = fields["negatives"]
        others = self.embed(negatives.flatten(0, 1)).unflatten(0, negatives.shape[:2])
        candidates = torch.cat([self.embed(fields["positive"])[:, None], others], 1)
        scores = (candidates @ self.embed(fields["anchor"])[:, :, None]).squeeze(-1) / self.temperature
        return -scores.log_softmax(-1)[:, 0]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids [rows, n] → vectors of length one [rows, dim]."""
        return functional.normalize(self.body(tokens).mean(1), dim=-1)


class Distilled(nn.Module):
    """A small model that learns from a large one (Hinton et al., 1503.02531): KL to the teacher at a temperature, and the text itself."""

    def __init__(self, teacher: nn.Module, student: nn.Module, temperature: float, share: float) -> None:
        super().__init__()
        self.teacher, self.student = teacher.requires_grad_(False), student
        self.temperature, self.share = temperature, share

    def forward(self, fields: Fields) -> torch.Tensor:
        tokens = fields["tokens"]
        logits = self.student(tokens[:, :-1])
        with torch.no_grad():
            wanted = (self.teacher(tokens[:, :-1]) / self.temperature).log_softmax(-1)
        found = (logits / self.temperature).log_softmax(-1)
        apart = functional.kl_div(found, wanted, reduction="none", log_target=True).sum(-1).mean(1)
        return self.share * self.temperature**2 * apart + (1 - self.share) * loss_of(logits, tokens[:, 1:])


class Preferred(nn.Module):
    """Direct preference optimisation (Rafailov et al., 2305.18290, equation 7), against a frozen copy of the model."""

    def __init__(self, model: nn.Module, beta: float, prompt: int) -> None:
        super().__init__()
        self.reference = copy.deepcopy(model).requires_grad_(False)
        self.model, self.beta, self.prompt = model, beta, prompt

    def forward(self, fields: Fields) -> torch.Tensor:
        chosen, rejected = fields["chosen"], fields["rejected"]
        margin = self._log_likelihood(self.model, chosen) - self._log_likelihood(self.model, rejected)
        with torch.no_grad():
            before = self._log_likelihood(self.reference, chosen) - self._log_likelihood(self.reference, rejected)
        return -functional.logsigmoid(self.beta * (margin - before))

    def _log_likelihood(self, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        """Of the tokens after the prompt [rows]."""
        scores = model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return scores[:, self.prompt - 1 :].sum(1)


class LowRank(nn.Module):
    """A frozen linear layer and a trained product of two thin matrices (LoRA; Hu et al., 2106.09685). The product begins at zero."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer, self.scale = layer.requires_grad_(False), alpha / rank
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) + self.scale * self.up(self.down(x))
        return result


class NextToken(nn.Module):
    """A language model and its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, fields: Fields) -> torch.Tensor:
        return loss_of(self.model(fields["tokens"][:, :-1]), fields["tokens"][:, 1:])


def masked(dim: int = 64, layers: int = 2, heads: int = 4) -> nn.Module:
    """For bert.yaml."""
    return Masked(dim, layers, heads)


def embedding(dim: int = 64, layers: int = 2, heads: int = 4, temperature: float = 0.1) -> nn.Module:
    """For embedding.yaml."""
    return Embedding(dim, layers, heads, temperature)


def encoder_decoder(dim: int = 64, layers: int = 2, heads: int = 4) -> nn.Module:
    """For t5.yaml and t5-pipeline.yaml. `layers`: blocks of the encoder, and of the decoder."""
    return EncoderDecoder(dim, layers, heads)


def distilled(temperature: float = 2.0, share: float = 0.5) -> nn.Module:
    """For distillation.yaml. A real teacher's weights would be loaded here."""
    return Distilled(LanguageModel(128, 4, 4), LanguageModel(32, 2, 2), temperature, share)


def preferred(beta: float = 0.1, prompt: int = 12) -> nn.Module:
    """For dpo.yaml. A fine-tuned model's weights would be loaded here."""
    return Preferred(LanguageModel(64, 2, 4), beta, prompt)


def low_rank(rank: int = 4, alpha: float = 8.0) -> nn.Module:
    """For lora.yaml. A trained model's weights would be loaded here, before it is frozen."""
    model = LanguageModel(64, 2, 4).requires_grad_(False)
    for block in model.body.blocks:
        block.attend.query = LowRank(block.attend.query, rank, alpha)
        block.attend.keys = LowRank(block.attend.keys, rank, alpha)
    return NextToken(model)
