"""The placement groups that live on the Ray cluster.

Ray's head keeps a row of each removed group for as long as it runs, and Ray's public call decodes them all: 40 µs (one bundle) to 2 ms (64)
of each. Here a removed group's row is read only as far as its state, 2 to 30 µs. Ray has no public name for that.
"""

from collections.abc import Mapping
from typing import Any, Final

#: A row of Ray's `nodes()` or `placement_group_table()`.
Row = Mapping[str, Any]

TRIED: Final = ("2.60.",)


def living_groups() -> list[Row]:
    """The rows of all users' placement groups that are not removed, as `placement_group_table` has them.

    They come from that call on a version of Ray that was not tried, and over `ray://`, where nothing else can be called.
    """
    import ray
    from ray.util.client import ray as client

    if ray.__version__.startswith(TRIED) and not client.is_connected():
        return _decoded()
    from ray.util import placement_group_table

    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def _decoded() -> list[Row]:
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData

    groups = map(PlacementGroupTableData.FromString, state._connect_and_get_accessor().get_placement_group_table())
    return [
        state._gen_placement_group_info(group) for group in groups if group.state != PlacementGroupTableData.REMOVED
    ]
