"""A call to the cluster returns, raises an error of the service, or times out; it never blocks its caller.

Over a real Ray client: tests/integration/service/cluster/test_ray_connection.py.
"""

import asyncio
import threading

import pytest

from shardyard.service.cluster.ray_connection import in_thread, remote
from shardyard.service.errors import ClusterError, GangLost


def raising(error: Exception) -> None:
    raise error


async def test_a_call_runs_in_a_thread_of_its_own() -> None:
    assert await in_thread(threading.current_thread, 60.0) is not threading.current_thread()
    assert await in_thread(divmod, 60.0, 7, 3) == (2, 1)


async def test_a_call_that_hangs_is_an_error_and_its_late_result_is_dropped() -> None:
    released = threading.Event()
    try:
        with pytest.raises(ClusterError, match="did not answer"):
            await in_thread(released.wait, 0.01)
    finally:
        released.set()
    await asyncio.sleep(0)  # the thread may settle its future now


@pytest.mark.parametrize(
    "error",
    [OSError("refused"), RuntimeError("no head"), ValueError("an address"), Exception("Ray Client is not connected.")],
)
async def test_errors_below_are_errors_of_the_cluster(error: Exception) -> None:
    with pytest.raises(ClusterError, match=str(error)) as caught:
        await in_thread(raising, 60.0, error)
    assert caught.value.__cause__ is error and caught.value.remedy


@pytest.mark.parametrize("error", [ClusterError("known"), GangLost("lost"), KeyError("a mistake in our code")])
async def test_others_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await in_thread(raising, 60.0, error)
    assert caught.value is error


def test_ray_gets_each_function_once() -> None:
    """Ray, its client and its server keep each that was called, also if it is the same."""
    assert remote(raising, num_cpus=0) is remote(raising, num_cpus=0)
    assert remote(raising, num_cpus=0) is not remote(raising, max_calls=1)
