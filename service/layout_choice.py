"""What is shown of a layout that the layout advisor chose, from the spec as it is stored, and how another job takes a layout over."""

from collections.abc import Mapping
from typing import Any

from ..strategies.layout import Layout
from .spec import JobSpec


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


def as_chosen(written: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """The present layout of `spec`, and what was chosen with it, for the part `train` of a text that has another one."""
    train = spec.train
    options = train.model_dump(mode="json", exclude_defaults=True, include={"recompute", "offload"})
    return {"layout": _layout(written.get("layout"), train.layout), **options}


def _layout(written: Any, layout: Layout) -> dict[str, Any]:
    """The keys that the text has, and others that are not as by default."""
    whole = layout.model_dump(mode="json")
    names = written.keys() if isinstance(written, dict) else ()
    own = layout.model_dump(mode="json", exclude_defaults=True, exclude={"auto"})
    return {name: whole[name] for name in names} | own


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
