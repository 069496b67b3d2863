"""What is shown of a layout that the layout advisor chose, from the spec as it is stored."""

from collections.abc import Mapping
from typing import Any


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


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
