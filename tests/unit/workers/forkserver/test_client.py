import os
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardyard.workers.forkserver import client


def test_other_imports_are_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    name = client.folder_name({"PYTHONPATH": "/a", "HOME": "/x"})
    assert name == client.folder_name({"PYTHONPATH": "/a", "HOME": "/y"})
    assert name != client.folder_name({"PYTHONPATH": "/b"})
    monkeypatch.setattr(client, "fingerprint", lambda: "other code")
    assert name != client.folder_name({"PYTHONPATH": "/a"})


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(client.ForkError):
        client.connect(tmp_path, os.getpid(), {})


def test_a_client_waits_for_room_in_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that still imports."""
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as clients:
        listener.bind(str(tmp_path / client.SOCKET))
        listener.listen(0)

        def accept() -> None:
            clients.enter_context(listener.accept()[0])

        def dial() -> socket.socket:
            return clients.enter_context(client._dial(tmp_path) or pytest.fail("no server listens"))

        dial()
        (accepts := threading.Timer(0.1, accept)).start()
        dial()
        accepts.join()
        monkeypatch.setattr(client, "_ROOM_S", 0.0)
        with pytest.raises(BlockingIOError):
            dial()
    assert client._dial(tmp_path) is None
