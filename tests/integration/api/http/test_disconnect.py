"""A search of a log keeps no other request waiting: others are answered meanwhile, and it ends when its client goes."""

import asyncio
import socket
import threading
from typing import Any

import httpx2
import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import Client
from shardyard.service.store import log_search as rows

from ..conftest import SIGNED, SPEC, Gang, Plane, ask


class Held:
    """Every search stays where it has its connection, until its request is cancelled."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    async def matching(self, *_: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_a_list_is_answered_beside_a_search_which_ends_with_its_client(
    plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.submit(SPEC).id
    Gang(plane, job).log(0, 0, "line")
    held = Held()
    monkeypatch.setattr(rows, "matching", held.matching)
    address = httpx2.URL(plane.url)
    with socket.create_connection((address.host, address.port)) as searcher:
        searcher.sendall(
            f"GET /v1/jobs/{job}/logs/search?text=x HTTP/1.1\r\nHost: {address.host}\r\n"
            f"Authorization: {SIGNED['Authorization']}\r\n\r\n".encode()
        )
        assert held.begun.wait(PATIENCE_S)
        listed = ask("GET", f"{plane.url}/v1/jobs").json()
        assert [each["id"] for each in listed["items"]] == [job]
        assert client.submit(SPEC).id != job
        assert not held.ended.is_set()
    assert held.ended.wait(PATIENCE_S)
