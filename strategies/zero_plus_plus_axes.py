"""The groups that ZeRO++ makes of the replicas over which ZeRO shards. Imports no torch."""

from .layout import Layout


def zero_plus_plus_axes(layout: Layout) -> dict[str, tuple[int, int]]:
    """Axis → how many ranks it has, and how far apart they are among replicas: `replica = node · q + place`."""
    given = layout.zero_plus_plus
    if given is None:
        return {}
    found = {} if given.secondary is None else {"secondary": (given.secondary, 1)}
    node, ranks = given.gradient_node, layout.shard or layout.data * layout.context
    return found if node is None else found | {"node": (node, 1), "nodes": (ranks // node, node)}
