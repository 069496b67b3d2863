"""The layouts of the parity grid as dry runs of a small model take them: layout and changes of the spec by name."""

from typing import Any

from .layouts import CONTEXT_LAYOUTS, DELAYED_LAYOUTS, EXPERT_LAYOUTS, LAYOUTS, QUANTISED_LAYOUTS

MIXTURE = {"family": "moe", "preset": "nano", "capacity_factor": 1.25}
BIASED = {**MIXTURE, "balance": "bias", "shared_experts": 1}
PACKED = {"seq_len": 128, "documents": "packed"}
#: One of each context method, and of several axes.
WITH_DOCUMENTS = (
    "ring2",
    "ulysses2-zbv2",
    "gather2-data2-zero3",
    "scores2",
    "windows2-tensor2-zero3",
    "ring2-inside-ulysses2",
)
ALL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{name: (layout, {}) for name, layout in LAYOUTS.items()},
    **{f"context-{name}": (layout, {}) for name, layout in CONTEXT_LAYOUTS.items()},
    **{f"experts-{name}": (layout, {"model": MIXTURE}) for name, layout in EXPERT_LAYOUTS.items()},
    **{f"quantised-{name}": (layout, {}) for name, layout in QUANTISED_LAYOUTS.items()},
    **{f"delayed-{name}": (layout, {}) for name, layout in DELAYED_LAYOUTS.items()},
    **{f"biased-{name}": (EXPERT_LAYOUTS[name], {"model": BIASED}) for name in ("data2-expert2", "zbv2-expert2-zero3")},
    **{f"packed-{name}": (CONTEXT_LAYOUTS[name], {"data": PACKED}) for name in WITH_DOCUMENTS},
    "packed-accumulate": (LAYOUTS["accumulate"], {"data": PACKED}),
}
