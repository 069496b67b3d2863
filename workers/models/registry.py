"""Builds a module from the numbers of an architecture."""

from .decoder import Decoder
from .gpt2 import GPT2
from .llama import Llama
from .moe import MixtureOfExperts
from .presets import Architecture

FAMILIES: dict[str, type[Llama] | type[GPT2] | type[MixtureOfExperts]] = {
    "llama": Llama,
    "gpt2": GPT2,
    "moe": MixtureOfExperts,
}


def make(arch: Architecture) -> Decoder:
    """The decoder of `arch`, on torch's current default device (use `with torch.device("meta")` to allocate no memory)."""
    return FAMILIES[arch.family](arch)
