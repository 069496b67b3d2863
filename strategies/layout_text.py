"""A layout as short text. Imports no torch."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layout import Layout


def format_layout(layout: "Layout") -> str:
    """Such as `data 2 (ZeRO-1) × tensor 2 × pipeline 2 (1f1b)`."""
    parts = []
    if layout.data > 1 or layout.zero or layout.world_size - layout.servers == 1:
        groups = f" in groups of {layout.shard}" if layout.shard else ""
        smaller = f"; {layout.zero_plus_plus}" if layout.zero_plus_plus else ""
        parts.append(f"data {layout.data}" + (f" (ZeRO-{layout.zero}{groups}{smaller})" if layout.zero else ""))
    if layout.context > 1:
        parts.append(f"context {layout.context} ({' × '.join(_context_kinds(layout))})")
    if layout.tensor_shape is not None:
        parts.append(f"tensor {layout.tensor_shape}")
    elif layout.tensor > 1:
        parts.append(f"tensor {layout.tensor}" + ("" if layout.sequence else " (no sequence parallel)"))
    if layout.pipeline > 1:
        synchronised = ", vertical sync" if layout.vertical_sync else ""
        parts.append(f"pipeline {layout.pipeline} ({layout.schedule}{synchronised}{_split(layout)})")
    spread = f", experts over {layout.expert} replicas" if layout.expert > 1 else ""
    return " × ".join(parts) + spread + _servers(layout)


def _servers(layout: "Layout") -> str:
    options = layout.parameter_server
    if options is None:
        return ""
    how = {"sync": "", "stale": f" (stale, bound {options.bound})", "async": " (async)"}[options.mode]
    return f", {options.servers} parameter server{'s' * (options.servers > 1)}{how}"


def _split(layout: "Layout") -> str:
    if layout.pipeline_blocks is not None:
        return f", blocks {' + '.join(map(str, layout.pipeline_blocks))}"
    return ", split by profile" if layout.pipeline_split == "profile" else ""


def _context_kinds(layout: "Layout") -> list[str]:
    """The parts of the context axis, the outer one first."""
    windows = f" in windows of {layout.ring_window}" if layout.ring_window else ""
    ring = f"{layout.context_method} {layout.ring}{windows}"
    kinds = [(layout.ring, ring), (layout.ulysses, f"Ulysses {layout.ulysses}")]
    return [words for degree, words in (kinds if layout.context_inner == "ulysses" else kinds[::-1]) if degree > 1]
