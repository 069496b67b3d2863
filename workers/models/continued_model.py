"""What the model of a checkpoint has in common with the one that continues it, as their numbers show. Imports no torch."""

from collections.abc import Callable, Mapping
from operator import gt, lt, ne
from typing import Any, Final

from ...strategies.layout import Refusal
from .presets import Architecture

#: Number → whether the model that continues lacks weights if its number is `now` and the checkpoint's `before`: there are more of them, or
#: they have other shapes. Weights that only the checkpoint has are not read. Of other heads weights of equal shapes mean nothing.
_LACKS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    **dict.fromkeys(("family", "heads", "kv_heads", "dim", "hidden", "experts", "vocab"), ne),
    "layers": lt,
    "tied": gt,
    "qkv_bias": lt,
    "qk_norm": lt,
    "shared_experts": lambda before, now: now not in (0, before),
    "balance": lambda before, now: now == "bias" != before,
    "head_size": ne,
}
#: Numbers that no key of a spec sets: a preset or a folder has them.
_OF_PRESETS: Final = frozenset({"qkv_bias", "qk_norm", "head_size"})
#: Numbers that no weight depends on, or whose tensors' shapes show them.
_FREE: Final = frozenset({"max_seq_len", "vocab", "head_dim"})


def refuse_other_model(saved: Mapping[str, Any] | None, here: Architecture | None) -> None:
    """Raises `Refusal` if `saved`, the architecture in a manifest, lacks weights of the model `here`, or GPT-2's table has another length.

    None: not known. A table that a longer `seq_len` extends beyond the preset's has the length of that sequence.
    """
    if saved is None or here is None:
        return
    _refuse_other_weights(_with_head_size(saved), _with_head_size(here.model_dump()))
    before, now = saved.get("max_seq_len"), here.max_seq_len
    if here.family == saved.get("family") == "gpt2" and before not in (None, now):
        raise Refusal(
            "data.seq_len",
            f"the checkpoint's model has {before} learned positions, not {now}, so its table does not fit this model.",
            f"Set data.seq_len to {before}, or to less if the preset itself has {before} positions; or leave resume_from out.",
        )


def _refuse_other_weights(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    known = [name for name in _LACKS if saved.get(name) is not None]
    differ = [name for name in known if _LACKS[name](saved[name], here[name])]
    if not differ:
        return
    if "family" in differ:
        differ = ["family"]  # the others' numbers mean something else
    elif {"dim", "heads"}.intersection(differ):
        differ = [name for name in differ if name != "head_size"]  # it follows them
    settable = [name for name in differ if name not in _OF_PRESETS]
    back = ", ".join(f"model.{name} to {_text(saved[name])}" for name in differ)
    raise Refusal(
        f"model.{settable[0] if settable else 'preset'}",
        f"the checkpoint's model has {_listed(saved, differ)}, and this one has {_listed(here, differ)}: its weights do not fit.",
        f"{f'Set {back}' if settable == differ else 'Use the preset of its model'}, or leave resume_from out.",
    )


def _with_head_size(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """With the width of a head, which an architecture without `head_dim` does not name."""
    dim, heads = numbers.get("dim"), numbers.get("heads")
    return {**numbers, "head_size": numbers.get("head_dim") or (dim // heads if dim and heads else None)}


def _listed(numbers: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name} {_text(numbers[name])}" for name in names)


def _text(value: Any) -> str:
    """As a spec has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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
