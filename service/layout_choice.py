"""What is shown of a layout that the layout advisor chose, from the spec as it is stored, and how another job takes a layout over."""

from collections.abc import Mapping
from typing import Any, Final

from .spec import AnySpec, CommandSpec

#: The keys of a command's spec that are its layout.
_OF_COMMAND: Final = frozenset(("ranks", "elastic", "ranks_per_node"))


def layout_choice(spec: Mapping[str, Any]) -> str | None:
    """For which devices the layout was chosen, what else was, and the predicted time; None if the user chose it.

    `spec`: as a job's row stores it.
    """
    train = spec.get("train") or {}
    auto = (train.get("layout") or {}).get("auto")
    if not auto or auto.get("step_s") is None:
        return None
    recompute, offload = train.get("recompute") or {}, train.get("offload") or {}
    options = [f"recompute {recompute['mode']}"] if recompute.get("mode", "none") != "none" else []
    options += ["optimizer state on the host"] if offload.get("optimizer") else []
    also = f", with {' and '.join(options)}" if options else ""
    return f"chosen by the layout advisor for {auto.get('devices')}{also}; predicted step time {_time(auto['step_s'])}"


def with_present_layout(document: Mapping[str, Any], spec: AnySpec) -> dict[str, Any]:
    """The document of a job's text with the layout that its `spec` has by now, and what was chosen with it.

    In it the layout is the user's own: what is changed in it is not the layout advisor's choice.
    """
    if isinstance(spec, CommandSpec):
        whole = spec.model_dump(mode="json", include={*_OF_COMMAND})
        own = spec.model_dump(mode="json", exclude_defaults=True, include={*_OF_COMMAND})
        return {**document, **_present(document, whole, own)}
    written, train = document["train"], spec.train
    layout = train.layout.model_copy(update={"auto": None})
    whole = layout.model_dump(mode="json")
    own = layout.model_dump(mode="json", exclude_defaults=True)
    options = train.model_dump(mode="json", exclude_defaults=True, include={"recompute", "offload"})
    return {**document, "train": {**written, "layout": _present(written.get("layout"), whole, own), **options}}


def _present(written: Any, whole: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The keys that the text has, and others that are not as by default."""
    names = written.keys() if isinstance(written, dict) else ()
    return {name: whole[name] for name in names if name in whole} | own


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
