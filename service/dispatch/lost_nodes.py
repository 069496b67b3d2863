"""Which of a cluster's lost nodes are stored: Ray lists a thousand of them for as long as its head runs, in no order."""

from collections.abc import Sequence
from typing import Any, Final

from ..store.nodes import Row

#: The most lost nodes of a cluster that are kept.
KEPT: Final = 50


def kept(found: Sequence[Row], stored: Sequence[Row]) -> list[Row]:
    """The rows to store: all living nodes, and of the lost ones that are stored the newest, as last seen alive.

    A node that was dead when it was first listed is left out.
    """
    seen_at = {row["id"]: float(row["seen_at"]) for row in stored}
    lost = [{**row, "seen_at": seen_at[row["id"]]} for row in found if not row["alive"] and row["id"] in seen_at]
    newest = sorted(lost, key=lambda row: row["seen_at"], reverse=True)[:KEPT]
    return [*(row for row in found if row["alive"]), *newest]


def differ(before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Whether anything but the time of the look has changed."""
    return _without_time(before) != _without_time(after)


def _without_time(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    return {row["id"]: {name: value for name, value in row.items() if name != "seen_at"} for row in rows}
