"""What ends the downloads of the blocking client that run side by side."""

import os
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import Client
from shardyard.api.client._sync import downloads
from shardyard.api.client._sync.runtime import for_each, stay


def test_ctrl_c_ends_a_download_while_the_network_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be tried again for minutes."""
    asked, requests = threading.Event(), list[httpx2.Request]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        asked.set()
        with suppress(CancelledError):
            while True:
                stay()
        raise httpx2.ReadTimeout("The network is gone.")

    def do(name: str) -> None:
        if name == "interrupted":
            asked.wait(PATIENCE_S)
            raise KeyboardInterrupt
        client.download_artifact("job", name, tmp_path)

    monkeypatch.setattr(downloads, "sleep", lambda _: None)
    with Client("http://127.0.0.1:9") as client:
        client.close()
        client._opened[os.getpid()] = httpx2.Client(transport=httpx2.MockTransport(answer))
        with pytest.raises(KeyboardInterrupt):
            for_each(do, ["weights", "interrupted"], at_once=2)
    assert len(requests) == 1
