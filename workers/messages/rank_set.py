"""Sets of ranks as text."""

from collections.abc import Sequence


def format_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 2`, or `ranks 0–3`; of many only the first."""
    ordered = sorted(ranks)
    noun = "rank " if len(ordered) == 1 else "ranks "
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{noun}{ordered[0]}–{ordered[-1]}"
    shown = ", ".join(map(str, ordered[:8]))
    return noun + shown + (f" and {len(ordered) - 8} more" if len(ordered) > 8 else "")
