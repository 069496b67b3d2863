"""A call to the cluster returns, raises an error of the service, or times out; it never blocks its caller."""

import asyncio
import threading

import pytest

from shardyard.service.cluster.ray_connection import in_thread
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


@pytest.mark.parametrize("error", [OSError("refused"), RuntimeError("no head"), ValueError("an address")])
async def test_errors_below_are_errors_of_the_cluster(error: Exception) -> None:
    with pytest.raises(ClusterError, match=str(error)) as caught:
        await in_thread(raising, 60.0, error)
    assert caught.value.__cause__ is error and caught.value.remedy


@pytest.mark.parametrize("error", [ClusterError("known"), GangLost("lost"), KeyError("a mistake in our code")])
async def test_others_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await in_thread(raising, 60.0, error)
    assert caught.value is error
