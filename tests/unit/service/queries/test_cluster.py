"""The use of clusters from their packed samples."""

from shardyard.service.queries.cluster import _use
from shardyard.service.store.packing.metric_curve import Bucket
from shardyard.service.store.packing.system_bucket import packed


def sample(used: float) -> bytes:
    """Of a cluster of 100 nodes."""
    values = {"nodes/alive": 100.0, "devices/cuda/used": used, "user/cuda/ann": used}
    return packed({name: Bucket(1, value, value, value) for name, value in values.items()})


def test_the_newest_minute_waits_for_each_cluster() -> None:
    found = [(10, sample(1)), (10, sample(2)), (11, sample(3)), (11, sample(4)), (12, sample(5))]
    both = _use(60, found, now=12 * 60 + 30)
    assert (both.starts, both.nodes, both.devices[0].used) == ([600, 660], [200, 200], [3, 7])
    late = _use(60, found, now=14 * 60)
    assert (late.starts[-1], late.nodes[-1]) == (720, 100), "one of the clusters reports no more"
    assert _use(60, found[:3], now=11 * 60 + 30).starts == [600]
    assert _use(60, [*found, (12, sample(6))], now=12 * 60 + 30).starts == [600, 660, 720]
    assert _use(60, [(10, sample(1))], now=10 * 60 + 30).starts == [600]
    assert _use(60, [], now=600).starts == []


def test_one_of_many_devices_shows() -> None:
    found = _use(60, [(10, sample(16_381))], now=900)
    assert found.devices[0].used == found.holders[0].used == [16_381]
