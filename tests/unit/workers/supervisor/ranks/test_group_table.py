"""Which rows of Ray's table of placement groups are decoded.

What a real head keeps: tests/integration/workers/supervisor/test_group_table.py.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pytest import MonkeyPatch

from shardyard.workers.supervisor.ranks.group_table import living_groups

STATES = ("PENDING", "REMOVED", "PREPARED", "REMOVED", "CREATED", "RESCHEDULING")


def serve(monkeypatch: MonkeyPatch, states: Sequence[str]) -> list[str]:
    """A head with a group in each of these states, named after its number; returns the names of those that are decoded."""
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData

    decoded: list[str] = []
    decode = state._gen_placement_group_info

    def row(number: int, found: str) -> bytes:
        group = PlacementGroupTableData(placement_group_id=bytes([number]), name=f"g{number}", state=found)
        bundle = group.bundles.add(unit_resources={"CPU": 0.5}, node_id=b"\xab")
        bundle.bundle_id.bundle_index = 3
        return bytes(group.SerializeToString())

    def decoding(group: Any) -> Any:
        decoded.append(group.name)
        return decode(group)

    rows = [row(number, found) for number, found in enumerate(states)]
    accessor = SimpleNamespace(get_placement_group_table=lambda: rows)
    monkeypatch.setattr(state, "_connect_and_get_accessor", lambda: accessor)
    monkeypatch.setattr(state, "_gen_placement_group_info", decoding)
    return decoded


def test_groups_that_were_removed_are_not_decoded(monkeypatch: MonkeyPatch) -> None:
    """A head keeps them all: after 10,000 trials they cost each look at the nodes over a second."""
    decoded = serve(monkeypatch, STATES)
    groups = living_groups()
    living = ["g0", "g2", "g4", "g5"]
    assert decoded == [group["name"] for group in groups] == living, "also those that are in no place yet, or move"
    assert groups[0]["bundles"] == {3: {"CPU": 0.5}} and groups[0]["bundles_to_node_id"] == {3: "ab"}


@pytest.mark.parametrize("where", ["another version", "ray://"])
def test_elsewhere_the_public_call_has_the_same_rows(where: str, monkeypatch: MonkeyPatch) -> None:
    import ray
    import ray.util
    from ray._private.state import state
    from ray.util.client import ray as client

    serve(monkeypatch, STATES)
    expected, table = living_groups(), state.placement_group_table()
    monkeypatch.setattr(ray.util, "placement_group_table", lambda: table)
    monkeypatch.setattr(state, "_connect_and_get_accessor", None)
    if where == "ray://":
        monkeypatch.setattr(client, "is_connected", lambda: True)
    else:
        monkeypatch.setattr(ray, "__version__", "1.0.0")
    assert living_groups() == expected and len(table) == len(STATES)
