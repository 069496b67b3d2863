"""Over `ray://`, as a dispatcher of the Helm chart is connected."""

import asyncio
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from harness.nodes import Nodes, running_nodes

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.ray_connection import inside, remote
from shardyard.service.errors import ClusterError
from shardyard.service.settings import Settings

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]  # a Ray of their own


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes([1.0]) as found:
        yield found


@pytest.fixture(scope="module")
def client_server(nodes: Nodes) -> Iterator[str]:
    """The address of a server for Ray clients."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ray.util.client.server", "--mode=legacy", f"--address={nodes.address}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(nodes.token)}
    process = subprocess.Popen([*command, "--host=127.0.0.1", f"--port={port}"], env=env, stdout=subprocess.DEVNULL)
    try:
        yield f"ray://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(client_server: str, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    data_dir = tmp_path_factory.mktemp("data")
    cluster = Cluster(Settings(data_dir=data_dir, ray_address=client_server, ray_auth_token_path=nodes.token))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(nodes.token))
        try:
            await cluster.connect()
            yield cluster
        finally:
            await cluster.disconnect()


def remembered() -> tuple[int, int]:
    """How many functions and classes this process and the cluster keep for its Ray client."""
    from ray.experimental.internal_kv import _internal_kv_list
    from ray.util.client import ray as client

    return len(client.get_context().client_worker._converted), len(_internal_kv_list("RemoteFunction", namespace="fun"))


async def test_looks_at_the_cluster_leave_nothing_behind(cluster: Cluster) -> None:
    async def look() -> None:
        assert [node.alive for node in await cluster.nodes()] == [True]
        assert await cluster.gangs() == []
        await cluster.close_gang("shardyard-none-1")

    await look()
    first = remembered()
    for _ in range(20):
        await look()
    assert remembered() == first
    await cluster.connect()
    await look()  # what was made for the connection before does not fit this one


async def test_what_a_cluster_of_an_earlier_version_does_not_know_is_called_here(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_a_later_version.py").write_text("import os\n\n\ndef process():\n    return os.getpid()\n")
    monkeypatch.syspath_prepend(tmp_path)
    process = importlib.import_module("of_a_later_version").process
    for _ in range(2):  # the client's own error at the second call would be another one
        with pytest.raises(ClusterError, match="does not know process: No module named 'of_a_later_version'"):
            await asyncio.to_thread(remote(process, num_cpus=0).start)
        assert await asyncio.to_thread(inside, process) == os.getpid()
