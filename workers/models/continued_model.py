"""What the model of a checkpoint has in common with the one that continues it, as their numbers show. Imports no torch."""

from collections.abc import Mapping
from typing import Any, Final

from ...strategies.layout import Refusal
from .presets import Architecture

#: Numbers that equal shapes do not show, with others of which the weights of attention mean nothing.
_OF_HEADS: Final = ("heads", "kv_heads")
#: Numbers that no weight depends on, or whose tensors' shapes show them.
_FREE: Final = frozenset({"max_seq_len", "vocab", "head_dim"})


def refuse_other_model(saved: Mapping[str, Any] | None, here: Architecture | None) -> None:
    """Raises `Refusal` if the attention of `saved`, the architecture in a manifest, has other heads, or GPT-2's table another length.

    None: not known. A table that a longer `seq_len` extends beyond the preset's has the length of that sequence.
    """
    if saved is None or here is None:
        return
    for name in _OF_HEADS:
        before, now = saved.get(name), getattr(here, name)
        if before is not None and before != now:
            raise Refusal(
                f"model.{name}",
                f"the checkpoint's model has {before}, not {now}, so its weights of attention are not valid here.",
                f"Set model.{name} to {before}, or leave resume_from out.",
            )
    before, now = saved.get("max_seq_len"), here.max_seq_len
    if here.family == saved.get("family") == "gpt2" and before not in (None, now):
        raise Refusal(
            "data.seq_len",
            f"the checkpoint's model has {before} learned positions, not {now}, so its table does not fit this model.",
            f"Set data.seq_len to {before}, or to less if the preset itself has {before} positions; or leave resume_from out.",
        )


def other_numbers(saved: Mapping[str, Any] | None, here: Architecture | None) -> str | None:
    """A sentence on the numbers in which the two architectures differ, though training can continue; None if there are none."""
    if saved is None or here is None:
        return None
    numbers = here.model_dump()
    differ = [name for name in numbers if name in saved and name not in _FREE and saved[name] != numbers[name]]
    if not differ:
        return None
    pairs = ", ".join(f"{name} {saved[name]}, now {numbers[name]}" for name in differ)
    return f"The model of the checkpoint had other numbers than this run's: {pairs}."
