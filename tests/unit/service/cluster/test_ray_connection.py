"""A call to the cluster returns, raises an error of the service, or times out; it never blocks its caller.

Over a real Ray client: tests/integration/service/cluster/test_ray_connection.py.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardyard.service.cluster.ray_connection import in_thread, inside, remote
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


class Client:
    """A Ray client as `ray://` gives it: a function that it failed to send to the cluster fails at each call."""

    def __init__(self, *sending: Exception) -> None:
        self.sending = list(sending)
        self.made = 0

    def remote(self, task: Callable[..., Any] | None = None, **_: Any) -> Any:
        return _Stub(self, task) if task is not None else lambda given: _Stub(self, given)


class _Stub:
    def __init__(self, client: Client, task: Callable[..., Any]) -> None:
        client.made += 1
        self._client, self._task, self._broken = client, task, False

    def options(self, **_: Any) -> "_Stub":
        return self

    def remote(self, *arguments: Any) -> Any:
        if self._broken:
            raise AttributeError("'InProgressSentinel' object has no attribute 'id'")
        if self._client.sending:
            self._broken = True
            raise self._client.sending.pop(0)
        return self._task(*arguments)


def joined(first: str, second: str) -> str:
    return first + second


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Client], Client]]:
    import ray
    from ray.util.client import ray as client

    def connected(to: Client) -> Client:
        remote.cache_clear()
        monkeypatch.setattr(type(client), "is_connected", lambda _self: True)
        monkeypatch.setattr(ray, "remote", to.remote)
        monkeypatch.setattr(ray, "get", lambda task, timeout: task)
        return to

    yield connected
    remote.cache_clear()


def test_a_function_that_could_not_be_sent_is_sent_again(connect: Callable[[Client], Client]) -> None:
    client = connect(Client(ConnectionError("reconnecting")))
    with pytest.raises(ConnectionError):
        inside(joined, "a", "b")
    assert [inside(joined, "a", "b") for _ in range(3)] == ["ab"] * 3
    assert client.made == 2  # Ray keeps each, so a good one is used again


@pytest.mark.parametrize("unknown", [AttributeError("no attribute"), ModuleNotFoundError("no module")])
def test_what_a_cluster_of_an_earlier_version_does_not_know_is_called_here(
    connect: Callable[[Client], Client], unknown: Exception
) -> None:
    client = connect(Client(unknown))
    assert inside(joined, "a", "b") == "ab" and client.made == 1
    connect(Client(unknown))
    with pytest.raises(ClusterError, match="does not know joined: no ") as caught:
        remote(joined).start("a", "b")
    assert caught.value.__cause__ is unknown and caught.value.remedy
