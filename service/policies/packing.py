"""Places tensor groups on nodes, by numbers alone."""

from collections.abc import Collection, Sequence


def groups_on(nodes: Sequence[int], size: int) -> int:
    """Number of tensor groups that fit on nodes with these numbers of ranks, each on one node."""
    return sum(ranks // size for ranks in nodes)


def placed(free: Collection[int], groups: int, size: int) -> list[int] | None:
    """The free ranks of each node after `groups` groups are placed, each on one node. None if they do not fit.

    The nodes with most free ranks are used first.
    """
    after = list(free)
    for place in sorted(range(len(after)), key=lambda place: (-after[place], place)):
        if not groups:
            break
        taken = min(groups, after[place] // size)
        groups -= taken
        after[place] -= taken * size
    return None if groups else after
