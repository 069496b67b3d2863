"""How the context axis is divided: into Ulysses ranks and a ring of R such groups, or windows of a ring. Imports no torch.

`context = ring · U + ulysses`, or with `context_inner: ring` `ulysses · R + ring`; in a double ring `ring = window · I + place`.
"""

import math

from .layout import Layout


def context_axes(layout: Layout) -> dict[str, tuple[int, int]]:
    """Axis → how many ranks it has, and how far apart they are on the context axis. A double ring has two axes for one."""
    ring, ulysses = (1, layout.ring) if layout.context_inner == "ring" else (layout.ulysses, 1)
    found = {"ulysses": (layout.ulysses, ulysses)}
    if layout.ring_window is None:
        return found | {"ring": (layout.ring, ring)}
    return found | {
        "inner_ring": (layout.ring_window, ring),
        "outer_ring": (windows(layout), ring * layout.ring_window),
    }


def place_on(layout: Layout, index: int) -> tuple[int, int]:
    """The places in the ring and among the Ulysses ranks of rank `index` of the context axis."""
    if layout.context_inner == "ring":
        return index % layout.ring, index // layout.ring
    return index // layout.ulysses, index % layout.ulysses


def windows(layout: Layout) -> int:
    """The number of windows of a double ring; 1 for a single ring."""
    return layout.ring // layout.ring_window if layout.ring_window else 1


def key_copies(layout: Layout, kv_heads: int) -> int:
    """How many copies of each of a model's key/value heads Ulysses needs, so that each of its ranks gets equally many heads."""
    own = max(1, kv_heads // layout.tensor)
    return math.lcm(own, layout.ulysses) // own
