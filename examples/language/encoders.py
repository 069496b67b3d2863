"""An encoder and a decoder like T5's (Raffel et al., 1910.10683), which a pipeline can cut anywhere between two blocks of either."""

import math
from collections.abc import Iterable, Mapping

import torch
from blocks import Block, loss_of
from texts import VOCABULARY
from torch import nn


class DistanceBias(nn.Module):
    """A number per head for the distance from a query to a key (section 2.1): near ones each have their own, far ones share by logarithm.

    `causal`: keys after the query are hidden. Otherwise both directions have numbers of their own.
    """

    def __init__(self, heads: int, causal: bool, buckets: int = 16, longest: int = 64) -> None:
        super().__init__()
        self.causal, self.buckets, self.longest = causal, buckets, longest
        self.numbers = nn.Embedding(buckets, heads)

    def forward(self, n: int) -> torch.Tensor:
        """For a sequence of n tokens [heads, n, n]."""
        places = torch.arange(n, device=self.numbers.weight.device)
        ahead = places[None, :] - places[:, None]
        bias: torch.Tensor = self.numbers(self._bucket(ahead)).permute(2, 0, 1)
        return bias.masked_fill(ahead > 0, torch.finfo(bias.dtype).min) if self.causal else bias

    def _bucket(self, ahead: torch.Tensor) -> torch.Tensor:
        buckets = self.buckets if self.causal else self.buckets // 2
        distance, near = ahead.abs(), buckets // 2
        share = (distance.clamp(min=1) / near).log() / math.log(self.longest / near)
        far = (near + share * (buckets - near)).long().clamp(max=buckets - 1)
        found = torch.where(distance < near, distance, far)
        return found if self.causal else found + buckets * (ahead > 0)


class EncoderDecoder(nn.Module):
    """One embedding serves encoder, decoder and head. A bias by distance serves all blocks of the encoder, another those of the decoder.

    A pipeline removes blocks, and what `used_by` says that only they use; the last stage has `norm` and `head`.
    """

    def __init__(self, dim: int, layers: int, heads: int) -> None:
        super().__init__()
        encoder, decoder = ([f"{stack}{layer}" for layer in range(layers)] for stack in ("encoder", "decoder"))
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.encoder_bias, self.decoder_bias = DistanceBias(heads, causal=False), DistanceBias(heads, causal=True)
        blocks = {name: Block(dim, heads, causal=False, crossed=False) for name in encoder}
        self.blocks = nn.ModuleDict({**blocks, **{name: Block(dim, heads, True, crossed=True) for name in decoder}})
        self.encoder_norm, self.norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)
        self.head.weight, self.scale = self.embed.weight, dim**-0.5
        self.used_by = {
            "embed": ("encoder0", "decoder0"),
            "encoder_bias": encoder,
            "encoder_norm": ("decoder0",),
            "decoder_bias": decoder,
        }

    def forward(
        self, fields: Mapping[str, torch.Tensor], x: torch.Tensor | None = None, encoded: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The loss of each row [rows]. `x` and `encoded` are what the stage before returned.

        A stage without `head` returns what the next one takes: its hidden states, and from the decoder on the encoder's output too.
        """
        encoder, decoder = ([self.blocks[n] for n in self.blocks if n.startswith(s)] for s in ("encoder", "decoder"))
        if "encoder0" in self.blocks:
            x = self.embed(fields["source"])
        if encoder:
            x = through(encoder, self.encoder_bias, x)
        if "decoder0" in self.blocks:
            encoded, x = self.encoder_norm(x), self.embed(fields["target"][:, :-1])
        if decoder:
            x = through(decoder, self.decoder_bias, x, encoded)
        assert x is not None
        if self.head is None:
            return (x,) if encoded is None else (x, encoded)
        return loss_of(self.head(self.norm(x) * self.scale), fields["target"][:, 1:])


def through(
    blocks: Iterable[nn.Module], bias: nn.Module, x: torch.Tensor | None, encoded: torch.Tensor | None = None
) -> torch.Tensor:
    """`x` [rows, n, dim] after these blocks of a stack; a decoder's attend to `encoded` [rows, m, dim]."""
    assert x is not None
    by_distance = bias(x.shape[1])
    for block in blocks:
        x = block(x, encoded, by_distance)
    return x
